package core

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// RegistryEvent is one change of the registry, as a watch delivers it in the broker's order.
type RegistryEvent struct {
	// Name is the job's name. It is empty if Ready or Settled is set.
	Name string

	// Revision is the newest revision of the registry that was delivered. If Ready or
	// Settled is set, every entry up to it was delivered.
	Revision uint64

	// Entry is the definition. It is not set if Deleted, Ready, Settled or Err is.
	Entry Entry

	// Deleted is true if the job was removed, at Time.
	Deleted bool
	Time    time.Time

	// Err is why the stored definition cannot be read. It disables this job only.
	Err error

	// Ready is true after all values that were stored when the watch began.
	Ready bool

	// Settled is true if no write up to Revision is missing. A watch that catches up delivers
	// only the last write of each job, so between two Settled events older entries may be
	// missing.
	Settled bool
}

// NodeEvent is one change of the nodes bucket, as a watch delivers it.
type NodeEvent struct {
	Name     string
	Revision uint64

	// Time is the broker's timestamp of the change.
	Time time.Time

	// Node is the record. It is not set if Gone, Ready or Err is.
	Node  Node
	Gone  bool
	Err   error
	Ready bool
}

// ErrContradicts is the error of a message that names another job, or another slot, than
// its subject or its message ID does. A login that may publish for one job only could
// send such a message to act for another job. It is wrapped together with job.ErrInvalid.
var ErrContradicts = errors.New("it contradicts itself")

// NoJob is the last token of the subject of an event that concerns no job.
const NoJob = "_"

// Exceptional returns the kinds of events that the events stream keeps for the ledger's
// retention.
func Exceptional() []job.EventKind {
	return []job.EventKind{
		job.EventFenced, job.EventTakeover, job.EventRefused, job.EventFailed, job.EventMissed, job.EventSkipped, job.EventExpired, job.EventCancelled, job.EventAlert,
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
