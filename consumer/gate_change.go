package consumer

import (
	"context"
	"errors"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// change computes one write of a job's lock.
type change struct {
	*gates
	seen  seenLock
	fresh bool // seen was just read
	entry *plans.Entry

	// look: the line has to be looked at once more, because of change.again of an earlier write.
	look bool

	next  core.Lock
	calls []calledSlot // the slots that the write calls

	// unsure: a verdict holds only if the lock is the one that was seen. A write shows that, or a read.
	unsure bool

	// again: the line has to be looked at once more after the write, which says that it is empty, or
	// there may be more to call.
	again bool
}

// calledSlot is a slot in the line whose message is to be published.
type calledSlot struct {
	record   job.Record
	revision uint64
}

// errStale says that a remembered lock does not suffice to answer a request.
var errStale = errors.New("the remembered lock may be stale")

// unlimited is the number of places of a job whose slots may run side by side.
const unlimited = math.MaxInt32

// places returns how many slots of the job may run at once. A deleted job has one place.
func (c *change) places() int {
	switch {
	case c.entry == nil:
		return 1
	case !c.entry.Job.Guarded():
		return unlimited
	}
	return c.entry.Job.Places()
}

// policy returns the job's overlap policy.
func (c *change) policy() job.Overlap {
	if c.entry == nil {
		return job.OverlapQueue
	}
	return c.entry.Job.WithDefaults().Overlap
}

// compute computes the next lock from the requests, and their verdicts. Slots leave before others
// enter, and those that enter go before those that wait only if none waits.
func (c *change) compute(ctx context.Context, all []*lockRequest) error {
	err := c.carryOutAll(ctx, all)
	if err == nil && c.unsure && !c.fresh && c.next.Same(c.seen.Lock) {
		return errStale
	}
	return err
}

func (c *change) carryOutAll(ctx context.Context, all []*lockRequest) error {
	for _, r := range all {
		if err := c.leave(ctx, r); err != nil {
			return err
		}
	}
	tend := c.look
	for _, r := range all {
		if r.enter != nil {
			if err := c.enter(ctx, r); err != nil {
				return err
			}
		}
		if r.stood > 0 {
			if !c.fresh {
				return errStale
			}
			c.next = c.next.Stood(r.stood)
			if c.next.Holds(r.stands.record.Slot) { // it was called meanwhile; the message may be the one that this task has
				c.calls = append(c.calls, r.stands)
			}
			tend = tend || core.Supersedes(c.policy())
		}
	}
	if c.next.Waiting && (tend || len(c.next.Holders) < c.places()) {
		return c.callFromLine(ctx)
	}
	if c.look && !c.next.Waiting {
		return c.lookAgain(ctx)
	}
	return nil
}

// enter asks for a place. Before a slot is skipped because of a holder, the holder's record is read: the
// holder may have ended a moment ago, without having left yet. Before a holder is replaced by a newer slot,
// that one's record is read: it may have been cancelled, or have expired, while it waited.
func (c *change) enter(ctx context.Context, r *lockRequest) error {
	for {
		next, verdict := c.next.Enter(*r.enter)
		refused := verdict.Kind == core.AdmissionSkipped || verdict.Kind == core.AdmissionReplaced
		if refused && !c.fresh {
			return errStale
		}
		holder, holds := c.next.Holder(verdict.InWay)
		if refused && holds && r.enter.Policy == job.OverlapSkip {
			left, err := c.leaveEnded(ctx, holder)
			if err != nil {
				return err
			}
			if left {
				continue
			}
		}
		if verdict.Kind == core.AdmissionReplaced {
			rec, _, err := c.cfg.Ledger.Read(ctx, verdict.InWay)
			if err != nil && !errors.Is(err, job.ErrNotFound) {
				return err
			}
			if err == nil && rec.State != job.Waiting {
				verdict = core.Admission{Kind: core.AdmissionGranted}
			}
		}
		switch {
		case verdict.Kind == core.AdmissionGranted && next.Same(c.next) && !r.enter.GoesOn(), verdict.Kind == core.AdmissionQueued && r.mayHold:
			c.unsure = true
		}
		c.next, r.verdict = next, verdict
		return nil
	}
}

// leaveEnded takes a holder out of the lock if its record says that it has its outcome. The record is
// read after the lock: an operator may reopen the slot, which changes the lock before the slot is claimed.
func (c *change) leaveEnded(ctx context.Context, holder core.LockSlot) (left bool, err error) {
	rec, _, err := c.cfg.Ledger.Read(ctx, holder.Slot)
	switch {
	case errors.Is(err, job.ErrNotFound), exchange.IsUnreadable(err), err == nil && !rec.State.Final():
		return false, nil
	case err != nil:
		return false, err
	}
	c.next = c.next.Leave(holder.Slot, holder.Node)
	return true, nil
}

// leave takes a slot out of the lock that has its outcome.
func (c *change) leave(ctx context.Context, r *lockRequest) error {
	switch {
	case r.leave == (job.Slot{}):
		return nil
	case !r.found:
		next := c.next.Leave(r.leave, c.cfg.Node.Name())
		if !next.Same(c.next) {
			c.next = next
			return nil
		}
	}
	if !c.fresh {
		return errStale
	}
	// The place may name another node that got the same message and lost the claim.
	if holder, holds := c.next.Holder(r.leave); holds {
		_, err := c.leaveEnded(ctx, holder)
		return err
	}
	return nil
}

// lookAgain reads the line after a write that has emptied it. If a slot was put there meanwhile, by a worker
// that has not looked at the lock yet, the line counts again.
func (c *change) lookAgain(ctx context.Context) error {
	found, err := c.cfg.Lines.Read(ctx, c.seen.Job, c.next.Line)
	if err != nil || len(found) == 0 {
		return err
	}
	c.next.Waiting = true
	return c.callFromLine(ctx)
}

// callFromLine gives the free places to the first slots of the line, and moves Line behind the entries
// that do not count any more. A slot that has to end is called without a place: its message is published
// before the write, since after the write nobody would look at its entry again.
func (c *change) callFromLine(ctx context.Context) error {
	line := c.seen.line.from(c.next.Line)
	defer func() { c.seen.line = line }()
	for windows := 0; ; {
		if len(line.entries) == 0 {
			found, err := c.cfg.Lines.Read(ctx, c.seen.Job, line.next)
			if err != nil {
				return err
			}
			if len(found) == 0 {
				c.next.Waiting, c.next.Line, c.again = false, line.next, true
				return nil
			}
			line = readAhead{entries: found, next: found[len(found)-1].Sequence + 1}
		}
		left, err := c.callAmong(ctx, line.entries)
		if err != nil {
			return err
		}
		line.entries = left
		if len(left) > 0 {
			c.next.Line = left[0].Sequence
			return nil
		}
		c.next.Line = line.next
		if windows++; windows >= mostWindows {
			c.again = true
			return nil
		}
	}
}

// mostWindows bounds how often one write reads on in a line.
const mostWindows = 5

// callAmong calls slots among the entries, in the order of their turns, and returns the entries that
// still count, in stream order.
func (c *change) callAmong(ctx context.Context, entries []core.Entry) (left []core.Entry, err error) {
	v := core.View{Now: c.cfg.Now(), Error: c.cfg.ClockError(), Implausible: c.cfg.Plausible() != nil, Horizon: c.cfg.Horizon}
	inTurn := slices.Clone(entries)
	core.SortEntries(inTurn)
	passed, kept := map[uint64]bool{}, map[uint64]bool{}
	for {
		chosen := c.choose(inTurn, passed)
		if len(chosen) == 0 {
			break
		}
		records, err := c.readRecords(ctx, chosen)
		if err != nil {
			return nil, err
		}
		var over []core.Entry
		var ending []calledSlot
		for i, e := range chosen {
			passed[e.Sequence] = true
			r := records[i]
			switch {
			case r.record.State != job.Waiting, c.next.Holds(e.Slot): // the entry does not count any more
			case c.next.IsOver(e, r.record, c.policy(), v), c.places() == unlimited:
				over, ending = append(over, e), append(ending, r)
			default:
				c.next = c.next.Call(e, v.Now)
				c.calls = append(c.calls, r)
			}
		}
		for i, published := range c.publishCalls(ctx, ending, c.entry) {
			kept[over[i].Sequence] = !published
		}
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e core.Entry) bool { return passed[e.Sequence] && !kept[e.Sequence] }), nil
}

// choose returns the entries whose records decide what becomes of them: those that were displaced, and
// as many others as there are free places. It marks entries that do not count as passed.
func (c *change) choose(inTurn []core.Entry, passed map[uint64]bool) (chosen []core.Entry) {
	free := c.places() - len(c.next.Holders)
	for _, e := range inTurn {
		switch {
		case passed[e.Sequence]:
		case e.Slot.Job == "" || c.next.Holds(e.Slot):
			passed[e.Sequence] = true
		case c.next.Displaced(e, c.policy()):
			chosen = append(chosen, e)
		case free > 0:
			chosen = append(chosen, e)
			free--
		}
	}
	return chosen
}

// mostCalls bounds the records that are read at once.
const mostCalls = 50

// readRecords reads the records of the entries' slots from the ledger's leader. It leaves out those that
// there are not, and those that cannot be read.
func (c *change) readRecords(ctx context.Context, entries []core.Entry) ([]calledSlot, error) {
	records := make([]calledSlot, len(entries))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(mostCalls)
	for i, e := range entries {
		group.Go(func() error {
			rec, revision, err := c.cfg.Ledger.Read(ctx, e.Slot)
			switch {
			case errors.Is(err, job.ErrNotFound), exchange.IsUnreadable(err): // else one record would stop the job
				return nil
			case err != nil:
				return err
			}
			records[i] = calledSlot{rec, revision}
			return nil
		})
	}
	return records, group.Wait()
}
