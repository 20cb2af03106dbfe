package model

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

func (f *fleet) reach(what string, done func() bool) {
	f.t.Helper()
	natstest.Eventually(f.t, what, done)
}

func (c *client) writeSlot(ctx context.Context, what string, r job.Record, at uint64) (uint64, outcome) {
	return c.write(ctx, call{
		key: r.Slot.Key(), what: what, nonce: r.Nonce, at: at, final: r.State.Final(),
		value: fmt.Sprintf("%s %d %s", r.State, r.Attempt, r.Node),
	}, func(ctx context.Context) (uint64, error) { return c.slots.Write(ctx, r, at) })
}

func (c *client) writeNode(ctx context.Context, what string, n exchange.Node, at uint64) (uint64, outcome) {
	return c.write(ctx, call{
		key: "node/" + n.Name, what: what, nonce: n.Nonce, at: at, final: n.State != exchange.NodeAlive, value: string(n.State),
	}, func(ctx context.Context) (uint64, error) { return c.nodes.Write(ctx, n, at) })
}

// write makes one call of a write: it repeats the same write until it is answered, or until the client
// gives up.
func (c *client) write(ctx context.Context, w call, do func(context.Context) (uint64, error)) (uint64, outcome) {
	w.client, w.began = c.id, c.h.now()
	for {
		trying, cancel := c.patience(ctx)
		revision, err := do(trying)
		cancel()
		switch {
		case err == nil:
			w.outcome, w.revision = won, revision
		case errors.Is(err, job.ErrConflict):
			w.outcome = refused
		default:
			if !errors.Is(err, job.ErrUnknown) {
				c.t.Errorf("%s of %s: %v", w.what, w.key, err)
			}
			c.unknown.Add(1)
			if ctx.Err() == nil && !c.chance(5) {
				continue
			}
			w.outcome = unanswered
		}
		w.ended = c.h.now()
		c.h.add(w)
		return w.revision, w.outcome
	}
}

// patience bounds how long a client waits for one answer of kv: sometimes less, and sometimes more than
// one attempt of kv lasts.
func (c *client) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	d := 200 * time.Millisecond
	if c.chance(3) {
		d = 1500 * time.Millisecond
	}
	return context.WithTimeout(ctx, d)
}

func (c *client) look(ctx context.Context, slot job.Slot, v *core.View) bool {
	r := call{client: c.id, key: slot.Key(), what: "read", began: c.h.now()}
	trying, cancel := c.patience(ctx)
	defer cancel()
	rec, revision, err := c.slots.Read(trying, slot)
	if !c.saw(r, revision, rec.Nonce, fmt.Sprintf("%s %d %s", rec.State, rec.Attempt, rec.Node), err) {
		return false
	}
	v.Revision = revision
	if err == nil {
		v.Record = &rec
	}
	return true
}

func (c *client) lookNode(ctx context.Context, name string) (exchange.Node, uint64, bool) {
	r := call{client: c.id, key: "node/" + name, what: "read", began: c.h.now()}
	trying, cancel := c.patience(ctx)
	defer cancel()
	e, err := c.nodes.Read(trying, name)
	return e.Node, e.Revision, c.saw(r, e.Revision, e.Node.Nonce, string(e.Node.State), err)
}

func (c *client) saw(r call, revision uint64, nonce, value string, err error) bool {
	switch {
	case errors.Is(err, job.ErrNotFound):
		nonce, value = "", "nothing"
	case err != nil:
		c.unknown.Add(1)
		if !errors.Is(err, job.ErrUnknown) {
			c.t.Errorf("read %s: %v", r.key, err)
		}
		return false
	}
	r.outcome, r.revision, r.nonce, r.value, r.ended = saw, revision, nonce, value, c.h.now()
	c.h.add(r)
	return true
}
