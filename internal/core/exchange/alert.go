package exchange

import (
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// AlertsFold is how long the stream of events certainly folds two alerts with one message ID.
const AlertsFold = job.DefaultDuplicates - time.Minute

// maxAlertOutput bounds the output in an alert, in bytes.
const maxAlertOutput = 3 << 10

// NewAlert returns the event that asks for an alert of this kind about a record. revision is
// that of the record in the ledger. The caller fills in Node.
func NewAlert(r job.Record, revision uint64, kind job.State) job.Event {
	return job.Event{
		V: codec.Version, Kind: job.EventAlert, Alert: kind, Time: r.Finished, ID: r.Slot.ID(), Job: r.Slot.Job, JobRevision: r.JobRevision,
		Attempt: r.Attempt, Fence: r.Fence(revision), Error: r.Error, Count: r.Count, Last: r.Last,
		Output: endOf(r.Output, maxAlertOutput), Revision: revision,
	}
}

// endOf returns the last runes of s, in at most limit bytes.
func endOf(s string, limit int) string {
	s = s[max(0, len(s)-limit):]
	for s != "" && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return s
}

// AlertID returns the message ID of the alert about a record. All nodes that publish the alert
// compute the same ID. When a reopened slot ends again, its record has another revision, so the
// alert has another ID.
func AlertID(r job.Record, revision uint64, kind job.State) string {
	return r.Slot.ID() + "/alert/" + string(kind) + "/" + strconv.FormatUint(revision, 10)
}

// AlertAbout returns where j sends alerts of this kind. kind is the outcome of a slot,
// job.AlertRecovered or job.AlertLate. Nil: j asks for no such alert.
func AlertAbout(j job.Job, kind job.State) *job.Alert {
	switch kind {
	case job.Failed, job.Expired:
		return j.OnFailure
	case job.Missed:
		return j.OnMissed
	case job.Succeeded:
		return j.OnSuccess
	case job.AlertRecovered:
		return j.OnRecovered
	case job.AlertLate:
		return j.OnLate
	}
	return nil
}

// AlertsOn returns the alerts that the job asks for when a slot has this outcome, except
// job.AlertRecovered, which depends on earlier slots.
func AlertsOn(j job.Job, outcome job.State) (kinds []job.State) {
	if AlertAbout(j, outcome) != nil {
		kinds = append(kinds, outcome)
	}
	if outcome == job.Succeeded && j.Heartbeat != nil {
		kinds = append(kinds, job.AlertHeartbeat)
	}
	return kinds
}

// WantsAlerts reports whether the job asks for any alert.
func WantsAlerts(j job.Job) bool {
	return j.OnFailure != nil || j.OnMissed != nil || j.OnSuccess != nil || j.OnRecovered != nil || j.OnLate != nil || j.Heartbeat != nil
}
