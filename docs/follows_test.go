package docs_test

import (
	"encoding/json"
	"testing"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// chainCase is what follows, in one job, from the slots that it comes after.
type chainCase struct {
	Name string `json:"name"`

	// Definition is of the job that comes after.
	Definition stored `json:"definition"`

	// Records are those that there are of the slots that it comes after; Headers the
	// message of the one whose outcome was written last.
	Records []json.RawMessage `json:"records"`
	Headers headers           `json:"headers"`

	Messages []published `json:"messages,omitempty"`
}

func TestChains(t *testing.T) {
	t.Parallel()
	hold(t, "chains.json", answerChain)
}

func answerChain(t *testing.T, c chainCase) chainCase {
	t.Helper()
	m, err := core.ParseMessage(c.Headers.lists())
	if err != nil {
		t.Fatal(err)
	}
	var before []job.Record
	for _, value := range c.Records {
		before = append(before, record(t, value))
	}
	e := c.Definition.entry(t)
	c.Messages = nil
	for _, m := range core.Chain(e, before, core.Delivery{Message: m}) {
		m.Node = "a-1-1-x"
		c.Messages = append(c.Messages, published{e.Job.Queue, single(m.Header()), string(e.Job.Payload)})
	}
	return c
}

func record(t *testing.T, value json.RawMessage) job.Record {
	t.Helper()
	r, err := exchange.DecodeRecord(value)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// alertCase is the alert for an outcome that the ledger has at a revision.
type alertCase struct {
	Name       string          `json:"name"`
	Definition stored          `json:"definition"`
	Record     json.RawMessage `json:"record"`
	Revision   uint64          `json:"revision"`

	// MsgID and Event are absent if there is no alert.
	MsgID string          `json:"msg_id,omitempty"`
	Event json.RawMessage `json:"event,omitempty"`
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	hold(t, "alerts.json", answerAlert)
}

func answerAlert(t *testing.T, c alertCase) alertCase {
	t.Helper()
	r := record(t, c.Record)
	c.MsgID, c.Event = "", nil
	if r.IsShadow() { // the worker looks at that first
		return c
	}
	for _, kind := range exchange.AlertsOn(c.Definition.entry(t).Job, r.State) {
		e := exchange.NewAlert(r, c.Revision, kind)
		e.Node = "a-1-1-x"
		c.MsgID, c.Event = exchange.AlertID(r, c.Revision, kind), raw(t, e)
	}
	return c
}
