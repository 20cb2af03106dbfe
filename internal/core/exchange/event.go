// Package exchange holds the values that nodes exchange besides definitions, messages and
// locks: records and events cut to the server's limit, alerts, node records, announcements,
// the watermark, the end of a sweep, and requests that ask a node what it holds. Their
// bytes are described in docs/protocol.md. It is pure, like package core.
package exchange

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// ErrContradicts is the error of a message that names another job, or another slot, than
// its subject or its message ID does. A login that may publish for one job only could
// send such a message to act for another job. It is wrapped together with job.ErrInvalid.
var ErrContradicts = errors.New("it contradicts itself")

// NoJob is the last token of the subject of an event that concerns no job.
const NoJob = "_"

// Kinds returns all kinds of events.
func Kinds() []job.EventKind {
	return append([]job.EventKind{job.EventSucceeded, job.EventRetrying, job.EventProgress, job.EventOutput}, KeptKinds()...)
}

// KeptKinds returns the kinds of events that the events stream keeps for the ledger's
// retention.
func KeptKinds() []job.EventKind {
	return []job.EventKind{
		job.EventFenced, job.EventTakeover, job.EventRefused, job.EventFailed, job.EventMissed, job.EventSkipped, job.EventExpired, job.EventCancelled, job.EventAlert,
		job.EventOrdered,
	}
}

// CheckEventSubject refuses an event that was not published on NS.event.<kind>.<job> of
// its own kind and job, and one whose slot belongs to another job. So a login that may
// publish events of one job cannot publish events of another. Its errors wrap ErrInvalid
// and ErrContradicts.
func CheckEventSubject(e job.Event, subject string) error {
	of, _, _ := strings.Cut(e.ID, ":")
	name := cmp.Or(e.Job, of, NoJob)
	tokens := strings.Split(subject, ".")
	if len(tokens) == 4 && tokens[1] == "event" && tokens[2] == string(e.Kind) && tokens[3] == name && (of == "" || of == name) {
		return nil
	}
	return fmt.Errorf("%w event: %w: it reports %q as %q, of job %q, and was published on %q",
		job.ErrInvalid, ErrContradicts, codec.Clip(e.ID), codec.Clip(string(e.Kind)), codec.Clip(e.Job), codec.Clip(subject))
}

// DecodeRecord reads a value of the ledger.
func DecodeRecord(data []byte) (job.Record, error) { return decode[job.Record](data) }

// DecodeEvent reads the body of an event.
func DecodeEvent(data []byte) (job.Event, error) { return decode[job.Event](data) }

// DecodeSettings reads the value of the key "settings".
func DecodeSettings(data []byte) (job.Settings, error) { return decode[job.Settings](data) }

// decode calls UnmarshalJSON itself: json.Unmarshal would read the data twice.
func decode[T any, P interface {
	*T
	json.Unmarshaler
}](data []byte) (T, error) {
	var value, none T
	if err := P(&value).UnmarshalJSON(data); err != nil {
		return none, err
	}
	return value, nil
}

// IsUnreadable reports whether err concerns one stored value, which this program cannot
// read, and not the broker. The caller can skip the value and go on.
func IsUnreadable(err error) bool {
	return errors.Is(err, job.ErrVersion) || errors.Is(err, job.ErrInvalid)
}
