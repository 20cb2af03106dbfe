package model

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// slotLedger and nodeKeys are the stores that a client uses. kv.Ledger and kv.Nodes implement them.
type slotLedger interface {
	Read(context.Context, job.Slot) (job.Record, uint64, error)
	Write(context.Context, job.Record, uint64) (uint64, error)
}

type nodeKeys interface {
	Read(context.Context, string) (exchange.NodeEvent, error)
	Write(context.Context, exchange.Node, uint64) (uint64, error)
}

// fleet is the clients, and what they share.
type fleet struct {
	t       *testing.T
	h       *history
	clients []*client

	// first is the number of the oldest slot without an outcome. Clients work on windowSlots slots from
	// it on.
	first atomic.Int64

	// turns counts the turns of the clients, and unknown the calls that were not answered. Faults wait
	// for both.
	turns, unknown atomic.Int64
}

// windowSlots is how many slots are worked on at a time.
const windowSlots = 5

var epoch = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

func slotAt(i int64) job.Slot { return job.NewSlot("report", epoch.Add(time.Duration(i)*time.Minute)) }

// fault breaks something in the middle of a round, and mends it when felt calls were not answered, or when
// the round is over.
type fault struct {
	breaks func()
	felt   int64
	mends  func() // nil: there is nothing to mend
}

// round has all clients take some turns at once, with a fault in the middle.
func (f *fleet) round(ctx context.Context, fault *fault) {
	f.t.Helper()
	const turns = 30
	begun := f.turns.Load()
	all := int64(turns * len(f.clients))
	var busy sync.WaitGroup
	for _, c := range f.clients {
		busy.Go(func() {
			for range turns {
				c.turn(ctx)
				f.turns.Add(1)
			}
		})
	}
	done := func(n int64) bool { return f.turns.Load() >= begun+n }
	if fault != nil {
		f.reach("half of a round", func() bool { return done(all / 2) })
		unknown := f.unknown.Load()
		fault.breaks()
		f.reach("the fault to be felt", func() bool { return done(all) || f.unknown.Load() >= unknown+fault.felt })
		if fault.mends != nil {
			fault.mends()
		}
	}
	busy.Wait()
	if ctx.Err() != nil {
		f.t.Fatalf("the round did not end in time: %v", ctx.Err())
	}
}

// interrupted has each of the clients own a slot, and breaks something before they complete it. No other
// client writes meanwhile, so a completion that is not answered has not been overwritten when its client
// stops waiting.
func (f *fleet) interrupted(ctx context.Context, clients []*client, fault *fault) {
	f.t.Helper()
	const enough = 200 // turns to own something
	for _, c := range clients {
		for range enough {
			if len(c.open) > 0 {
				break
			}
			c.turn(ctx)
		}
	}
	unknown := f.unknown.Load()
	fault.breaks()
	var busy sync.WaitGroup
	for _, c := range clients {
		if len(c.open) > 0 {
			busy.Go(func() { c.complete(ctx) })
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); busy.Wait() }()
	f.reach("the fault to be felt", func() bool {
		select {
		case <-done:
			return true
		default:
			return f.unknown.Load() >= unknown+fault.felt
		}
	})
	fault.mends()
	<-done
}

// client is a worker without a clock. It claims, completes, fences and takes over at random times, by the
// real claim rules. When it was fenced, it goes on writing at its old revisions.
type client struct {
	*fleet
	id    int
	dice  *rand.Rand
	slots slotLedger
	nodes nodeKeys

	lives, writes int
	name          string
	beatAt        uint64
	open          []claimed
}

// claimed is a slot that the client owns, or once owned.
type claimed struct {
	record job.Record
	fence  uint64
}

func (f *fleet) enlist(dice *rand.Rand, slots slotLedger, nodes nodeKeys) {
	f.clients = append(f.clients, &client{fleet: f, id: len(f.clients), dice: dice, slots: slots, nodes: nodes})
}

// chance is true once in n times.
func (c *client) chance(n int) bool { return c.dice.IntN(n) == 0 }

func (c *client) turn(ctx context.Context) {
	switch {
	case len(c.open) > 0 && c.chance(2):
		c.complete(ctx)
	case c.name == "":
		c.begin(ctx)
	case c.chance(6):
		c.beat(ctx)
	default:
		c.serve(ctx, slotAt(c.first.Load()+c.dice.Int64N(windowSlots)))
	}
}

// begin starts a new incarnation. If its first heartbeat is not answered, the next turn begins another
// one under another name.
func (c *client) begin(ctx context.Context) {
	c.lives++
	c.name, c.beatAt = fmt.Sprintf("w%d-%d", c.id, c.lives), 0
	c.beat(ctx)
}

func (c *client) beat(ctx context.Context) {
	n := exchange.Node{Name: c.name, State: exchange.NodeAlive, Started: epoch, Lease: job.DefaultLease, Nonce: c.nonce()}
	revision, out := c.writeNode(ctx, "beat", n, c.beatAt)
	if out == won {
		c.beatAt = revision
		return
	}
	c.name = "" // it was fenced, or its heartbeat was not answered
}

// serve does what a worker does when the slot's message is delivered to it.
func (c *client) serve(ctx context.Context, slot job.Slot) {
	if slices.ContainsFunc(c.open, func(o claimed) bool { return o.record.Slot == slot }) {
		return // the client owns it already
	}
	entry := &plans.Entry{Definition: plans.Definition{Job: job.Job{Name: slot.Job, Retry: job.Retry{Attempts: 50}, Overlap: job.OverlapAllow}}}
	v := core.View{Now: slot.At.Add(time.Hour), Self: c.name, Horizon: job.DefaultHorizon, Entry: entry, Handles: true}
	d := core.Delivery{Message: core.Message{Slot: slot, Due: slot.At}, Queue: "default", Published: slot.At, Count: 1}
	if !c.chance(3) && !c.look(ctx, slot, &v) {
		return
	}
	decision, what := core.Decide(d, v), "claim"
	if decision.Action == core.Prove {
		if !c.dead(ctx, v.Record.Node) {
			return
		}
		v.OwnerDead = true
		decision, what = core.Decide(d, v), "takeover"
	}
	switch decision.Action {
	case core.Start, core.End:
		c.claim(ctx, what, decision, v.Revision)
	case core.Ack:
		if i := int64(slot.At.Sub(epoch) / time.Minute); i == c.first.Load() {
			c.first.CompareAndSwap(i, i+1)
		}
	}
}

func (c *client) claim(ctx context.Context, what string, decision core.Decision, at uint64) {
	rec := decision.Record
	rec.Nonce = c.nonce()
	fence, out := c.writeSlot(ctx, what, rec, at)
	switch {
	case out == unanswered:
		c.name = ""
	case out == won && decision.Action == core.Start:
		c.open = append(c.open, claimed{rec, fence})
	}
}

// complete ends an attempt. Now and then it ends the incarnation instead, whose slots others may then take
// over. A client that was fenced completes too, as a zombie would.
func (c *client) complete(ctx context.Context) {
	i := c.dice.IntN(len(c.open))
	o := c.open[i]
	if c.chance(6) {
		c.open, c.name = nil, ""
		return
	}
	c.open = slices.Delete(c.open, i, i+1)
	res := core.Result{Err: errors.New("again")}
	if c.chance(10) {
		res.Err = nil
	}
	rec := core.Complete(o.record, o.fence, o.record.Slot.At.Add(time.Minute), job.DefaultHorizon, res)
	rec.Nonce = c.nonce()
	if _, out := c.writeSlot(ctx, "complete", rec, o.fence); out == unanswered {
		c.name = ""
	}
}

// dead fences a node now and then, without waiting for a lease of silence: the write must be sound at any
// time. It reports whether the node is fenced.
func (c *client) dead(ctx context.Context, name string) bool {
	n, revision, ok := c.lookNode(ctx, name)
	switch {
	case !ok:
		return false
	case n.State == exchange.NodeFenced:
		return true
	case c.chance(2):
		return false
	}
	n.Name, n.State, n.FencedBy, n.Nonce = name, exchange.NodeFenced, c.name, c.nonce()
	_, out := c.writeNode(ctx, "fence", n, revision)
	return out == won
}

func (c *client) nonce() string {
	c.writes++
	return fmt.Sprintf("%d#%d", c.id, c.writes)
}
