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

// RegistryEvent is one change of the registry as a watcher sees it, in the order
// of the broker.
type RegistryEvent struct {
	// Name is the job's name; empty in a Ready or Settled event.
	Name string

	// Revision is the registry's last revision that was seen, this change included.
	// In a Ready or Settled event, every entry up to it has been seen.
	Revision uint64

	// Entry is the definition. Not set when Deleted, Ready, Settled or Err is.
	Entry Entry

	// Deleted says that the job was removed, at Time.
	Deleted bool
	Time    time.Time

	// Err says that the stored definition cannot be read. It disables this job
	// only.
	Err error

	// Ready closes the initial listing: all that was stored has been seen.
	Ready bool

	// Settled says that nothing that was written up to Revision is missing. Between
	// two of them it may be: a watch that catches up shows the last write of each job
	// only, in the place of that write.
	Settled bool
}

// NodeEvent is one change of the nodes bucket as a watcher sees it.
type NodeEvent struct {
	Name     string
	Revision uint64

	// Time is the broker's timestamp of the change.
	Time time.Time

	// Node is the record; not set when Gone, Ready or Err is.
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
	return fmt.Errorf("%w event: %w: it tells that %q is %q, of job %q, and was published on %q",
		job.ErrInvalid, ErrContradicts, codec.Clip(e.ID), codec.Clip(string(e.Kind)), codec.Clip(e.Job), codec.Clip(subject))
}
