package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// Locks stores the jobs' locks. kv.Locks satisfies it. Its errors are those of Ledger.
type Locks interface {
	Read(ctx context.Context, name string) (core.Lock, uint64, error)
	Write(ctx context.Context, l core.Lock, revision uint64) (uint64, error)
}

// Lines stores the lines of the jobs: the slots that wait for a place. stream.Lines satisfies it.
type Lines interface {
	// Put puts a slot into its job's line. revision is that of the slot's record, which is Waiting.
	// Put repeats the message until it is answered or ctx ends. It returns the entry's sequence.
	Put(ctx context.Context, e core.Entry, revision uint64) (sequence uint64, err error)

	// Read returns the first entries of a job's line at or after a sequence, in stream order. It
	// returns none only if the line has none, as the stream's leader answers. An entry that cannot be
	// read has only its Sequence.
	Read(ctx context.Context, name string, from uint64) ([]core.Entry, error)
}

// gates carry out a consumer's requests to the locks of jobs.
//
// Invariants:
//   - One goroutine at a time works on the lock of a job. It carries out all requests that have
//     come since it took the last ones, with one write. So slots that come or end together do
//     not refuse each other's writes, and many slots of a job start in one round trip.
//   - A slot is refused, and left in the line, only by a lock that was read or written after the
//     slot asked. A remembered lock may only admit a slot by a write, which fails if the lock is another
//     one.
//   - The slots that wait are not in memory, but for the entries that were read ahead (see seenLock).
type gates struct {
	*Consumer
	memory lockMemory

	mu    sync.Mutex
	asked map[string][]*lockRequest // of the jobs for which a goroutine works, what it has not taken yet
}

// lockRequest is one request to a job's lock.
type lockRequest struct {
	// enter is a slot that asks for a place. mayHold: it may have one already.
	enter   *core.Entrant
	mayHold bool

	// leave is a slot that has its outcome and leaves its place. found is true if this consumer has
	// not written the outcome itself, but found it.
	leave job.Slot
	found bool

	// stood is the sequence of an entry that was put into the line, for the record stands. The request
	// makes sure that the line counts, and calls from the line if a place is free.
	stood  uint64
	stands calledSlot

	// answered is called once. It must not block.
	answered func(core.Admission, error)
	verdict  core.Admission
}

func newGates(c *Consumer) *gates {
	return &gates{Consumer: c, memory: newLockMemory(), asked: map[string][]*lockRequest{}}
}

// ask hands in a request to the lock of a job, and does not wait.
func (g *gates) ask(name string, r *lockRequest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	waiting, works := g.asked[name]
	g.asked[name] = append(waiting, r)
	if !works {
		g.slots.Add(1)
		go g.work(name)
	}
}

// work carries out the requests to one lock until there are none.
func (g *gates) work(name string) {
	defer g.slots.Done()
	for {
		g.mu.Lock()
		all := g.asked[name]
		if len(all) == 0 {
			delete(g.asked, name)
			g.mu.Unlock()
			return
		}
		g.asked[name] = nil
		g.mu.Unlock()
		g.carryOut(name, all)
	}
}

// carryOut carries out the requests, and answers them. If this code panics, the requests fail.
func (g *gates) carryOut(name string, all []*lockRequest) {
	err := errors.New("the work on the lock did not end")
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
			g.cfg.Logger.Error("working on the lock of a job panicked", "job", name, "error", err)
		}
		for _, r := range all {
			r.answered(r.verdict, err)
		}
	}()
	ctx, cancel := context.WithTimeout(g.cfg.Life, g.cfg.Lease)
	defer cancel()
	if node := g.cfg.Node.Context(); node.Err() != nil {
		all = g.refuseEntrants(all, context.Cause(node))
	}
	if err = g.change(ctx, name, all); err != nil {
		err = fmt.Errorf("change the lock of job %s: %w", name, err)
	}
}

// refuseEntrants answers the slots that ask for a place with an error, and returns the other requests.
func (g *gates) refuseEntrants(all []*lockRequest, cause error) (others []*lockRequest) {
	for _, r := range all {
		if r.enter != nil {
			r.answered(core.Admission{}, cause)
		} else {
			others = append(others, r)
		}
	}
	return others
}

// change carries out the requests with one write of the lock. If other nodes write it meanwhile, it
// reads the lock and begins anew.
func (g *gates) change(ctx context.Context, name string, all []*lockRequest) error {
	entry, err := g.definition(ctx, name)
	if err != nil {
		return err
	}
	read, look := g.memory.get, false
	for conflicts := 0; ; {
		seen, fresh, err := read(ctx, g.cfg.Locks, name)
		if err != nil {
			return err
		}
		read = g.memory.get
		c := change{gates: g, seen: seen, fresh: fresh, next: seen.Lock, entry: entry, look: look}
		err = c.compute(ctx, all)
		switch {
		case errors.Is(err, errStale):
			read = g.memory.read
			continue
		case err != nil:
			return err
		case c.next.Same(seen.Lock):
			g.memory.put(name, c.seen)
			g.publishCalls(ctx, c.calls, entry)
			return nil
		}
		c.next.Job, c.next.Nonce = name, g.cfg.Table.nonce(g.cfg.Node.Name())
		revision, err := g.cfg.Locks.Write(ctx, c.next, seen.revision)
		if err != nil {
			g.memory.forget(name)
		}
		switch {
		case errors.Is(err, job.ErrConflict):
			if conflicts++; !backOff(ctx, conflicts) {
				return err
			}
			continue
		case err != nil:
			return err
		}
		g.memory.put(name, seenLock{Lock: c.next, revision: revision, line: c.seen.line})
		g.publishCalls(ctx, c.calls, entry)
		if look = c.again; !look {
			return nil
		}
		all = nil // carried out; what is left is to look at the line once more
	}
}

// definition returns the job's definition, or nil if the job was deleted, or its definition cannot be read.
func (g *gates) definition(ctx context.Context, name string) (*plans.Entry, error) {
	if e := g.cfg.Registry.Known(name, 0); e != nil {
		return e, nil
	}
	e, err := g.cfg.Registry.Lookup(ctx, name, 0)
	switch {
	case errors.Is(err, job.ErrNotFound), exchange.IsUnreadable(err):
		return nil, nil //nolint:nilnil // no failure: the job counts as one with a single place
	case err != nil:
		return nil, err
	}
	return &e, nil
}

// publishCalls publishes the messages of the slots that were called, and returns which of them were
// published. If one that holds a place was not, the sweep finds that it does not start.
func (g *gates) publishCalls(ctx context.Context, calls []calledSlot, entry *plans.Entry) (published []bool) {
	published = make([]bool, len(calls))
	var all sync.WaitGroup
	for i, c := range calls {
		all.Go(func() {
			queue, payload := c.record.Queue, c.record.Payload
			chained := false
			if entry != nil {
				queue, chained = entry.Job.WithDefaults().Queue, entry.IsChained(c.record.Slot)
				if c.record.Slot.Token == "" {
					payload = entry.Job.Payload
				}
			}
			for _, m := range core.CallMessages(c.record, c.revision, g.cfg.Node.Name(), chained) {
				if err := g.cfg.Publish(ctx, queue, m, payload); err != nil {
					g.cfg.Logger.Warn("slot called from its job's line, but not published; the fleet publishes it within a minute", "slot", m.Slot.ID(), "error", err)
					return
				}
			}
			published[i] = true
		})
	}
	all.Wait()
	return published
}

// backOff waits before the next write of a lock. conflicts is how many writes in a row were
// refused. It does not wait after the first refusal, and waits longer after each further one, up
// to half a second. It returns false if ctx ends.
func backOff(ctx context.Context, conflicts int) bool {
	if conflicts < 2 {
		return ctx.Err() == nil
	}
	d := 5 * time.Millisecond << min(conflicts, 6)
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
