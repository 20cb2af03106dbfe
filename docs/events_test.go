package docs_test

import (
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
)

// eventCase is a message of a stream that starts a job, and the slots of its run.
type eventCase struct {
	Name       string    `json:"name"`
	Definition stored    `json:"definition"`
	Stream     string    `json:"stream"`
	Created    time.Time `json:"created"`
	Sequence   uint64    `json:"sequence"`
	Stored     time.Time `json:"stored"`
	ID         string    `json:"id,omitempty"`
	Size       int       `json:"size,omitempty"`
	Bare       bool      `json:"bare,omitempty"` // up to cronce_bare of its consumer

	// Takes is the plan that the message belongs to: its place among those of the
	// definition, -1 for none. On a work queue the first plan has older messages too.
	Takes int       `json:"takes"`
	Slots []string  `json:"slots"`
	Due   time.Time `json:"due"`

	// Refused: the slot's message says why it cannot be made.
	Refused bool `json:"refused,omitempty"`
}

func TestMessagesThatStartJobs(t *testing.T) {
	t.Parallel()
	hold(t, "events.json", answerEvent)
}

func answerEvent(t *testing.T, c eventCase) eventCase {
	t.Helper()
	e, err := plans.DecodeEntry(c.Definition.Value, c.Definition.Revision, c.Definition.Time)
	if err != nil {
		t.Fatal(err)
	}
	c.Takes, c.Slots = -1, nil
	for i, p := range e.Plans() {
		if c.Stored.After(p.From) && (p.To.IsZero() || !c.Stored.After(p.To)) {
			c.Takes = i
		}
	}
	for _, m := range core.EventRun(e, core.StreamEvent{
		Stream: c.Stream, Created: c.Created, Sequence: c.Sequence, Stored: c.Stored, ID: c.ID, Size: c.Size, SequenceOnly: c.Bare,
	}) {
		c.Slots = append(c.Slots, m.Slot.ID())
		c.Due, c.Refused = m.Due, m.Refused != ""
		if !m.Event {
			t.Errorf("%s does not say that a message started it", m.Slot)
		}
	}
	return c
}
