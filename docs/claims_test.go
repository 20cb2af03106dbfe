package docs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// claimCase is one slot's way through the ledger.
type claimCase struct {
	Name      string    `json:"name"`
	Headers   headers   `json:"headers"`
	Queue     string    `json:"queue"`
	Published time.Time `json:"published"`
	Horizon   duration  `json:"horizon"`

	// Body is the message's: the payload of a triggered run that has its own.
	Body string `json:"body,omitempty"`

	// Definition is the job's; absent: the job was deleted.
	Definition *stored     `json:"definition,omitempty"`
	Steps      []claimStep `json:"steps"`
}

// claimStep is one thing that a node does about the slot.
type claimStep struct {
	Node string    `json:"node"`
	Do   string    `json:"do"` // decide, complete, release, cancel
	Now  time.Time `json:"now"`

	// Offer is n of "/r<n>" in the ID of the message that is decided about: of a slot that was called from its
	// job's line, for example. 0: it is that of the headers.
	Offer int `json:"offer,omitempty"`

	// Delivered, Unread, OwnerDead, Disowned and NoHandler are about decide. Unread: the
	// node has not looked for a record, and supposes that there is none.
	Delivered int  `json:"delivered,omitempty"`
	Unread    bool `json:"unread,omitempty"`
	OwnerDead bool `json:"owner_dead,omitempty"`
	Disowned  bool `json:"disowned,omitempty"`
	NoHandler bool `json:"no_handler,omitempty"`

	// ClockError bounds how far Now is off. Implausible: Now cannot be believed.
	ClockError  duration `json:"clock_error,omitempty"`
	Implausible bool     `json:"implausible,omitempty"`

	// Deleted: the job was, before this step.
	Deleted bool `json:"deleted,omitempty"`

	Result *attemptResult `json:"result,omitempty"`

	// Request is about cancel: what the owner would be asked, if there were one.
	Request *core.CancelRequest `json:"request,omitempty"`

	// Place is what the job's lock said, in decide; absent: it was not asked.
	Place *lockAnswer `json:"place,omitempty"`

	// Wins is the revision that the step's write gets, if it is won.
	Wins uint64 `json:"wins,omitempty"`

	Action   string          `json:"action,omitempty"`
	Delay    duration        `json:"delay,omitempty"`
	At       *uint64         `json:"at,omitempty"`
	Record   json.RawMessage `json:"record,omitempty"`
	Conflict bool            `json:"conflict,omitempty"`
}

// lockAnswer is what the lock says in words of locks.json.
type lockAnswer struct {
	Place string `json:"place"`
	InWay string `json:"in_way,omitempty"`
}

func (a *lockAnswer) place(t *testing.T) (p core.Admission) {
	t.Helper()
	if a == nil {
		return p
	}
	for kind, name := range placeNames {
		if name == a.Place {
			p.Kind = kind
		}
	}
	if a.InWay != "" {
		var err error
		if p.InWay, err = job.ParseSlotID(a.InWay); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

type attemptResult struct {
	Error      string   `json:"error,omitempty"`
	Permanent  bool     `json:"permanent,omitempty"`
	RetryAfter duration `json:"retry_after,omitempty"`
	Stopped    bool     `json:"stopped,omitempty"`
	Cancelled  bool     `json:"cancelled,omitempty"`
	Output     string   `json:"output,omitempty"`

	// Value is the result that the handler has set.
	Value   json.RawMessage `json:"value,omitempty"`
	Backoff duration        `json:"backoff,omitempty"`
}

// slotLife is what stands in the ledger, and what each node holds as its claim.
type slotLife struct {
	claimCase
	record   *job.Record
	revision uint64
	claims   map[string]claimed
}

type claimed struct {
	record job.Record
	fence  uint64
}

func TestClaims(t *testing.T) {
	t.Parallel()
	hold(t, "claims.json", answerClaim)
}

func answerClaim(t *testing.T, c claimCase) claimCase {
	t.Helper()
	life := slotLife{claimCase: c, claims: map[string]claimed{}}
	for i := range c.Steps {
		s := &c.Steps[i]
		s.Action, s.Delay, s.At, s.Record, s.Conflict = "", 0, nil, nil, false
		life.step(t, s, fmt.Sprintf("%s#%d", s.Node, i+1))
	}
	return c
}

func (l *slotLife) step(t *testing.T, s *claimStep, nonce string) {
	t.Helper()
	held := l.claims[s.Node]
	switch s.Do {
	case "decide":
		d, v := l.delivery(t, s), l.view(t, s)
		step := core.Decide(d, v)
		s.Action, s.Delay = actions[step.Action], duration(step.Delay)
		if step.Action == core.Start || step.Action == core.End || step.Action == core.Stand && !step.Stored {
			l.write(t, s, step.Record, v.Revision, nonce)
		}
	case "complete":
		horizon := time.Duration(l.Horizon)
		if s.Implausible {
			horizon = math.MaxInt64
		}
		l.write(t, s, core.Complete(held.record, held.fence, s.Now, horizon, s.Result.result()), held.fence, nonce)
	case "cancel":
		v := l.view(t, s)
		l.write(t, s, core.Cancel(l.delivery(t, s), v, s.Request.Cause()), v.Revision, nonce)
	case "release":
		l.write(t, s, core.Release(held.record, s.Now), held.fence, nonce)
	default:
		t.Fatalf("no such thing to do: %q", s.Do)
	}
}

var actions = map[core.Action]string{core.Ack: "ack", core.Later: "later", core.Prove: "prove", core.Enter: "enter", core.Stand: "stand", core.Start: "start", core.End: "end"}

func (l *slotLife) delivery(t *testing.T, s *claimStep) core.Delivery {
	t.Helper()
	m, err := core.ParseMessage(l.Headers.lists())
	if err != nil {
		t.Fatal(err)
	}
	m.Offer = max(m.Offer, s.Offer)
	return core.Delivery{Message: m, Queue: l.Queue, Published: l.Published, Payload: []byte(l.Body), Count: s.Delivered}
}

func (l *slotLife) view(t *testing.T, s *claimStep) core.View {
	t.Helper()
	v := core.View{Now: s.Now, Error: time.Duration(s.ClockError), Implausible: s.Implausible, Self: s.Node, Horizon: time.Duration(l.Horizon), OwnerDead: s.OwnerDead, Disowned: s.Disowned, Handles: !s.NoHandler, Admission: s.Place.place(t)}
	if !s.Unread {
		v.Record, v.Revision = l.record, l.revision
	}
	if l.Definition != nil && !s.Deleted {
		e := l.Definition.entry(t)
		v.Entry = &e
	}
	return v
}

// write is the ledger: it stores what names the last revision, as JSON.
func (l *slotLife) write(t *testing.T, s *claimStep, r job.Record, at uint64, nonce string) {
	t.Helper()
	r.Nonce = nonce
	s.At, s.Record, s.Conflict = &at, raw(t, r), at != l.revision
	if s.Conflict {
		s.Wins = 0
		return
	}
	if s.Wins <= l.revision {
		t.Fatalf("%s: the write at %d wins revision %d: want a larger one", l.Name, at, s.Wins)
	}
	read, err := exchange.DecodeRecord(s.Record)
	if err != nil {
		t.Fatal(err)
	}
	l.record, l.revision = &read, s.Wins
	if r.State == job.Running {
		l.claims[s.Node] = claimed{read, s.Wins}
	}
}

func (r *attemptResult) result() core.Result {
	res := core.Result{Stopped: r.Stopped, Cancelled: r.Cancelled, Output: r.Output, Value: r.Value, Backoff: time.Duration(r.Backoff)}
	if r.Error != "" {
		res.Err = errors.New(r.Error)
	}
	if r.Permanent {
		res.Err = job.Permanent(res.Err)
	}
	if r.RetryAfter > 0 {
		res.Err = job.RetryAfter(time.Duration(r.RetryAfter), res.Err)
	}
	return res
}
