package plan

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// foreign returns the jobs that a client in another language has handlers for, and what their
// attempts do there. Such a client cannot draw from the seed as Case.Attempt does, so the payload of
// the job says what to do. Jobs with shards are left out: a client may leave shards to others.
func foreign(lease time.Duration) map[string]Act {
	return map[string]Act{
		"steady": {Work: 150 * time.Millisecond}, "long": {Work: 3 * lease / 2}, "once": {Work: lease / 2}, "permanent": {Result: ResultPermanent},
		"deadline": {Work: 100 * time.Millisecond}, "newest": {}, "none": {}, "cron": {Work: 100 * time.Millisecond},
		"skip": {Work: 2 * time.Second}, "queue": {Work: time.Second}, "latest": {Work: 2 * time.Second}, "replace": {Work: 5 * time.Second},
		"pair": {Work: 3 * time.Second}, "triggered": {Work: 100 * time.Millisecond},
		"flaky": {Work: 100 * time.Millisecond}, "thrice": {Work: lease / 4}, "panics": {Result: ResultError}, "dies": {Result: ResultError},
		"timeout": {Work: time.Hour}, "again": {Work: 100 * time.Millisecond}, "wordy": {}, "finish": {Work: lease / 2},
	}
}

// ForeignNames returns the names of the jobs that a client in another language has handlers for.
func ForeignNames(cases []Case) []string {
	acts := foreign(time.Second)
	return slices.DeleteFunc(CaseNames(cases), func(name string) bool { _, ok := acts[name]; return !ok })
}

// payload returns the payload that says to a client in another language what an attempt does.
func (a Act) payload() json.RawMessage {
	a.Result = cmp.Or(a.Result, ResultOK)
	data, err := json.Marshal(map[string]any{"ms": a.Work.Milliseconds(), "result": a.Result})
	if err != nil {
		panic(err) // cannot happen: the value is a number and a string
	}
	return data
}
