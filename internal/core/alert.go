package core

import (
	"strconv"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// NewAlert returns the event that asks for an alert about a record. revision is that of the
// record in the ledger. The caller fills in Node.
func NewAlert(r job.Record, revision uint64) job.Event {
	return job.Event{
		V: codec.Version, Kind: job.EventAlert, Alert: r.State, Time: r.Finished, ID: r.Slot.ID(), Job: r.Slot.Job, JobRevision: r.JobRevision,
		Attempt: r.Attempt, Fence: r.Fence(revision), Error: r.Error, Count: r.Count, Last: r.Last,
	}
}

// AlertID returns the message ID of the alert about a record. All nodes that publish the alert
// compute the same ID. When a reopened slot ends again, its revision and its ID differ.
func AlertID(r job.Record, revision uint64) string {
	return r.Slot.ID() + "/alert/" + string(r.State) + "/" + strconv.FormatUint(revision, 10)
}

// AlertAbout returns where to send the alert about a slot of j that ended with this
// outcome. Nil: nowhere.
func AlertAbout(j job.Job, outcome job.State) *job.Alert {
	switch outcome {
	case job.Failed, job.Expired:
		return j.OnFailure
	case job.Missed:
		return j.OnMissed
	}
	return nil
}
