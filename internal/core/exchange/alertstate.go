package exchange

import (
	"strconv"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

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
