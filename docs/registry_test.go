package docs_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// registryCase is the life of one entry: what is applied to it, or ordered, one after
// the other.
type registryCase struct {
	Name  string      `json:"name"`
	Steps []applyStep `json:"steps"`
}

// applyStep applies a definition, or is an order: pause, resume or release.
type applyStep struct {
	Job   json.RawMessage `json:"apply,omitempty"`
	Order string          `json:"order,omitempty"`
	Owner string          `json:"owner,omitempty"`
	Node  string          `json:"node"`
	Force bool            `json:"force,omitempty"`

	// Revision and Time are the broker's, of the write that the step makes.
	Revision uint64    `json:"revision"`
	Time     time.Time `json:"time"`

	Change string `json:"change"`
	// Value is what is written; Plans and Pauses how a reader then sees the job's past.
	Value  json.RawMessage `json:"value,omitempty"`
	Plans  []planSpan      `json:"plans,omitempty"`
	Pauses []pauseSpan     `json:"pauses,omitempty"`
}

// pauseSpan is a pause of what falls due later than From, up to and including To.
type pauseSpan struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to,omitzero"`
}

// planSpan is a plan with the slots that belong to it: later than After, up to
// and including Until.
type planSpan struct {
	Schedule string    `json:"schedule"`
	After    time.Time `json:"after"`
	Until    time.Time `json:"until,omitzero"`
}

var changes = map[plans.Change]string{
	plans.Unchanged: "unchanged", plans.Changed: "written", plans.Superseded: "superseded", plans.Held: "held",
}

func TestRegistryEntries(t *testing.T) {
	t.Parallel()
	hold(t, "registry.json", answerRegistry)
}

func answerRegistry(t *testing.T, c registryCase) registryCase {
	t.Helper()
	var entry *plans.Entry
	for i := range c.Steps {
		entry = c.Steps[i].apply(t, entry)
	}
	return c
}

func (s *applyStep) apply(t *testing.T, old *plans.Entry) *plans.Entry {
	t.Helper()
	next, change := s.next(t, old)
	s.Change, s.Value, s.Plans, s.Pauses = changes[change], nil, nil, nil
	if change != plans.Changed {
		return old
	}
	next.Nonce = fmt.Sprintf("%s#%d", s.Node, s.Revision)
	s.Value = raw(t, next)
	e := stored{s.Revision, s.Time, s.Value}.entry(t)
	for _, p := range e.Plans() {
		s.Plans = append(s.Plans, planSpan{p.Plan.Schedule, p.From, p.To})
	}
	for _, w := range e.Pauses {
		s.Pauses = append(s.Pauses, pauseSpan(w))
	}
	return &e
}

// next is what the step would write.
func (s *applyStep) next(t *testing.T, old *plans.Entry) (plans.Definition, plans.Change) {
	t.Helper()
	orders := map[string]func(plans.Entry, string) (plans.Definition, bool){"pause": plans.Pause, "resume": plans.Resume, "release": plans.ReleaseHold}
	if order := orders[s.Order]; order != nil {
		next, changed := order(*old, s.Node)
		if changed {
			return next, plans.Changed
		}
		return next, plans.Unchanged
	}
	var j job.Job
	if err := json.Unmarshal(s.Job, &j); err != nil {
		t.Fatal(err)
	}
	next, change, err := plans.Upsert(old, j, s.Owner, s.Node, s.Force)
	if err != nil {
		t.Fatal(err)
	}
	return next, change
}
