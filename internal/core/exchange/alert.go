package exchange

import (
	"strconv"
	"strings"
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

// UndeliverableAge is how long ago an alert that could not be delivered may be for "cronce doctor" to report it.
const UndeliverableAge = 2 * time.Hour

const undeliverable = "its alerts cannot be delivered: "

// NewUndeliverable returns the event which reports that the service of an alert, or of a heartbeat, will not take it,
// however often it is tried. It asks for no alert itself. The caller fills in Node.
func NewUndeliverable(e job.Event, why error) job.Event {
	return job.Event{V: codec.Version, Kind: job.EventAlert, ID: e.ID, Job: e.Job, Error: undeliverable + string(e.Alert) + ": " + why.Error()}
}

// Undeliverable returns what an event of NewUndeliverable reports, or false if the event is another one.
func Undeliverable(e job.Event) (why string, ok bool) {
	why, ok = strings.CutPrefix(e.Error, undeliverable)
	return why, ok && e.Kind == job.EventAlert && e.Alert == ""
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

// AlertState says whether a job is in trouble: whether a slot failed, or was late, and none has
// succeeded since. Workers store it for jobs that ask for an alert when they recover. Outcomes
// are ordered by their revisions in the ledger, so workers that write the state at the same
// time, or late, agree.
type AlertState struct {
	Job string `json:"job"`

	// Failed is true from a slot that failed, expired, was missed or caused an alert of OnLate
	// until a later success. ID is the slot that changed the state last. Time is when that slot
	// ended, or when the alert that it is late was sent. Revision is that of the newest outcome
	// that changed the state.
	Failed   bool      `json:"failed"`
	ID       string    `json:"id"`
	Revision uint64    `json:"revision"`
	Time     time.Time `json:"time"`

	Nonce string      `json:"nonce"`
	Extra codec.Extra `json:"-"`
}

// Next returns the state after the outcome of r, which the ledger has at revision. changed is
// false if the outcome does not change the state, or if s already contains a later outcome: one with a
// larger revision that did not end earlier. If only the revision of s is larger, the ledger was created
// again, or restored. If only its time is later, the clock may have been set back. recovered is true if
// the job recovers with this outcome.
func (s AlertState) Next(r job.Record, revision uint64) (next AlertState, changed, recovered bool) {
	fails := r.State == job.Failed || r.State == job.Expired || r.State == job.Missed
	switch {
	case revision <= s.Revision && !r.Finished.After(s.Time):
		return s, false, false
	case !fails && (r.State != job.Succeeded || !s.Failed):
		return s, false, false
	}
	next = AlertState{Job: r.Slot.Job, Failed: fails, ID: r.Slot.ID(), Revision: revision, Time: r.Finished.UTC(), Extra: s.Extra}
	return next, true, !fails
}

// RecoveredID returns the message ID of the alert that reports the recovery from the failure in s.
// Workers that record different successes after the same failure compute the same ID.
func (s AlertState) RecoveredID() string {
	return s.Job + "/alert/" + string(job.AlertRecovered) + "/" + strconv.FormatUint(s.Revision, 10)
}

type alertStateMembers AlertState // without methods

type alertStateWire struct {
	V int `json:"v"`
	alertStateMembers
}

// MarshalJSON writes the value of a key "alert.<job>".
func (s AlertState) MarshalJSON() ([]byte, error) {
	return codec.Encode(alertStateWire{codec.Version, alertStateMembers(s)}, s.Extra)
}

// DecodeAlertState reads the value of a key "alert.<job>".
func DecodeAlertState(data []byte) (AlertState, error) {
	var w alertStateWire
	extra, err := codec.DecodeBounded("alert state", data, &w, func(b *codec.Bounds) {
		b.Names("job", w.Job)
		b.Words("id", w.ID)
		b.Words("nonce", w.Nonce)
		b.Times("time", &w.Time)
	})
	if err != nil {
		return AlertState{}, err
	}
	w.Extra = extra
	return AlertState(w.alertStateMembers), nil
}
