package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// suspect is a slot whose next step is overdue.
type suspect struct {
	slot      job.Slot
	revision  uint64        // of its record
	published publishedSlot // of a slot without a record
}

// setBack is what age returns for a record that was stored before the broker's clock was set back.
const setBack = time.Duration(math.MaxInt64)

// age returns how long ago the broker stored a message or record that it stamped with at. If at is
// well ahead of the clock, the clock was set back, and age returns setBack. Times that were computed
// before that are meaningless, so the slot is a suspect now.
func (s *Sweeper) age(at time.Time) time.Duration {
	age := s.cfg.Now().Sub(at)
	if age < -stallAfter {
		return setBack
	}
	return age
}

// suspects returns the slots whose next step is overdue, with a record or without.
func (s *Sweeper) suspects(alive map[string]bool) []suspect {
	var found []suspect
	now := s.cfg.Now()
	owned, ownedAreDue := 0, now.Sub(s.ownedAt).Abs() >= ownedEvery
	for slot, c := range s.unfinished {
		movesAt := c.RetryAt
		switch {
		case c.State == job.Running && alive[c.Node]:
			if ownedAreDue && owned < maxOwned && s.age(c.Time) >= ownedEvery {
				found = append(found, suspect{slot: slot, revision: c.Revision})
				if owned++; owned == 1 {
					s.ownedAt = now
				}
			}
			continue
		case c.State == job.Running:
			movesAt = c.Time.Add(s.cfg.Lease)
		case movesAt.IsZero():
			movesAt = c.Time
		}
		if now.Sub(movesAt) > stallAfter || s.age(c.Time) == setBack {
			found = append(found, suspect{slot: slot, revision: c.Revision})
		}
	}
	for slot, p := range s.published {
		switch age := now.Sub(p.due); {
		case age > s.cfg.Horizon:
			delete(s.published, slot)
		case age > stallAfter:
			found = append(found, suspect{slot: slot, published: p})
		}
	}
	return found
}

const (
	// maxListed is the number of jobs above which the sweep lists the messages of all jobs.
	maxListed = 16

	// listRate bounds, in bytes a second, how often the sweep lists the same messages: after a listing of many
	// bytes it waits.
	listRate = 256 << 10
)

// listMessages finds out which slots have messages. The keys of hasMessage are the slots in question.
// listMessages sets the value to true if the slot has a message which a worker will get, or if that is not
// asked now (listAgain). A message of a shard also counts for the whole slot. listMessages returns the
// stranded messages, and those of queues that their jobs have left (movedJobs), and adds their slots to
// hasMessage. It lists only those, and the messages of the jobs in question, unless they are many.
func (s *Sweeper) listMessages(ctx context.Context, hasMessage map[job.Slot]bool) ([]strandedMessage, error) {
	now := s.cfg.Now()
	maps.DeleteFunc(s.listAgain, func(_ string, at time.Time) bool { return !now.Before(at) || at.Sub(now) > s.cfg.Horizon })
	jobs := questions(hasMessage)
	var stranded []strandedMessage
	collect := &stranded
	if _, all := jobs[""]; !all || s.waits("") {
		filter := stream.WaitingFilter{Fired: true, Stranded: true, Served: s.moved.served}
		if _, err := s.list(ctx, filter, hasMessage, collect); err != nil {
			return nil, err
		}
		jobs, collect = questions(hasMessage), nil
	}
	for name, slots := range jobs {
		if s.waits(name) {
			for _, slot := range slots {
				hasMessage[slot] = true
			}
			continue
		}
		size, err := s.list(ctx, stream.WaitingFilter{Job: name, Fired: true, Served: s.moved.served}, hasMessage, collect)
		if err != nil {
			return nil, err
		}
		if wait := time.Duration(size) * time.Second / listRate; wait > every {
			s.listAgain[name] = now.Add(wait)
		}
	}
	return stranded, nil
}

// questions returns the slots by their jobs, or all under "" if they are of many jobs.
func questions(hasMessage map[job.Slot]bool) map[string][]job.Slot {
	jobs := map[string][]job.Slot{}
	for slot := range hasMessage {
		jobs[slot.Job] = append(jobs[slot.Job], slot)
	}
	if len(jobs) > maxListed {
		return map[string][]job.Slot{"": slices.Collect(maps.Keys(hasMessage))}
	}
	return jobs
}

// waits reports whether the messages of the job, or all for "", are to be listed later.
func (s *Sweeper) waits(job string) bool {
	_, waits := s.listAgain[job]
	return waits
}

// list lists the messages that the filter selects, and returns about how many bytes it has read. It adds the
// stranded ones to stranded, if that is not nil.
func (s *Sweeper) list(ctx context.Context, filter stream.WaitingFilter, hasMessage map[job.Slot]bool, stranded *[]strandedMessage) (size int, err error) {
	for i, messages := range []Messages{s.cfg.Timers, s.cfg.Slots} {
		for w, err := range messages.Waiting(ctx, filter) {
			size += w.Size()
			switch {
			case errors.Is(err, job.ErrInvalid): // it is no slot's message
			case err != nil:
				return size, err
			case (w.Stranded || w.Unserved) && s.leftovers[strandedKey{i == 1, w.Sequence}]:
				// Its slot has ended, and no node may remove it.
			case w.Stranded, w.Unserved && s.moved.queue(ctx, w.Slot.Job, w.Queue) != "":
				if stranded == nil {
					continue
				}
				key := strandedKey{i == 1, w.Sequence}
				if s.age(w.Published) > stallAfter && key.isAfter(s.strandedAt) && len(*stranded) < maxStranded { // before, a worker may have it
					*stranded = append(*stranded, strandedMessage{w, key})
					hasMessage[w.Slot] = hasMessage[w.Slot] || false
				}
			default:
				for _, slot := range []job.Slot{w.Slot, w.Slot.Whole()} {
					if _, is := hasMessage[slot]; is {
						hasMessage[slot] = true
					}
				}
			}
		}
	}
	return size, nil
}

func (s *Sweeper) offerSuspects(ctx context.Context, suspects []suspect, hasMessage map[job.Slot]bool) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, p := range suspects {
		if hasMessage[p.slot] {
			continue
		}
		group.Go(func() error { return s.skipIfBad(ctx, p.slot, s.offer(ctx, p)) })
	}
	return group.Wait()
}

// offer publishes a message for a suspect, unless its record at the ledger's leader has
// changed.
func (s *Sweeper) offer(ctx context.Context, p suspect) error {
	rec, revision, err := s.cfg.Ledger.Read(ctx, p.slot)
	switch {
	case errors.Is(err, job.ErrNotFound) && p.published.queue != "":
		switch needs, err := s.needsRecord(ctx, p.slot); {
		case err != nil:
			return err
		case !needs:
			s.removeSuspect(p.slot, nil)
			return nil
		}
		m := core.Message{Slot: p.slot, JobRevision: p.published.revision, Due: p.published.due, CaughtUp: p.published.caughtUp}
		return s.send(ctx, p.published.queue, m, job.Record{Slot: p.slot}, 0)
	case err == nil && p.published.queue != "", errors.Is(err, job.ErrNotFound), exchange.IsUnreadable(err):
		s.removeSuspect(p.slot, err)
		return nil
	case err != nil:
		return err
	case rec.State.Final() || revision != p.revision:
		return nil // the next pass reads the change
	case rec.Shards > 0:
		if done, err := s.offerShards(ctx, rec, revision); err != nil || !done {
			return err
		}
	}
	return s.publish(ctx, rec, revision)
}

// needsRecord reports whether a slot without a record needs one. A shard needs none if the whole slot
// ended before one of its shards was claimed, or is split into another number of shards.
func (s *Sweeper) needsRecord(ctx context.Context, slot job.Slot) (bool, error) {
	if slot.Shards == 0 {
		return true, nil
	}
	whole, _, err := s.cfg.Ledger.Read(ctx, slot.Whole())
	if errors.Is(err, job.ErrNotFound) {
		return true, nil
	}
	return err == nil && !whole.State.Final() && whole.Shards == slot.Shards, err
}

// removeSuspect removes a suspect. If its record cannot be read, each pass reports that until the
// record is written again.
func (s *Sweeper) removeSuspect(slot job.Slot, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.published, slot)
	if err != nil {
		delete(s.unfinished, slot)
	}
	if exchange.IsUnreadable(err) {
		s.unreadable[slot] = err
	}
}

// skipIfBad returns err if it ends the pass. If err concerns only this slot, skipIfBad notes it and
// returns nil, and the pass goes on.
func (s *Sweeper) skipIfBad(ctx context.Context, slot job.Slot, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil || errors.Is(err, job.ErrUnknown) || errors.Is(err, job.ErrDenied) {
		return fmt.Errorf("offer %s again: %w", slot, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end.Skip("slot "+slot.ID(), err)
	return nil
}

// publish offers the slot of a record at revision.
func (s *Sweeper) publish(ctx context.Context, rec job.Record, revision uint64) error {
	return s.send(ctx, rec.Queue, core.Message{Slot: rec.Slot, JobRevision: rec.JobRevision, Due: rec.Due, Event: rec.Event}, rec, revision)
}

// send publishes the slot's message as an offer for its record at revision; 0 means no record.
func (s *Sweeper) send(ctx context.Context, queue string, m core.Message, rec job.Record, revision uint64) error {
	payload, err := s.payload(ctx, rec)
	if err != nil {
		return err
	}
	return s.sendAs(ctx, queue, m, payload, rec.State, core.OfferOf(revision))
}

// sendAs publishes the slot's message as the n-th offer. If the job has left the queue and the queue has
// no worker, sendAs publishes it in the job's present queue.
func (s *Sweeper) sendAs(ctx context.Context, queue string, m core.Message, payload []byte, state job.State, n int) error {
	m.Node, m.Offer = s.cfg.Node, n
	what := "slot offered again: its message was lost"
	present := s.moved.queue(ctx, m.Slot.Job, queue)
	switch {
	case m.Refused != "":
		what = "triggered run ended: its message and payload were lost before its first claim"
	case state.Final():
		what = "slot offered again: what follows from it is missing"
	case present != "":
		what = "slot offered again in the present queue of its job: its own queue has no worker"
	}
	queue = cmp.Or(present, queue)
	if _, err := s.cfg.Slots.Publish(ctx, queue, m, payload); err != nil {
		return err
	}
	s.cfg.Logger.Warn(what, "slot", m.Slot.ID(), "state", state, "queue", queue)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.Offered(m.Slot)
	return nil
}

// offerShards offers the shards of a whole slot that have no outcome. done is true if all have one.
// The caller then offers the whole slot, and the worker that gets it writes its outcome.
func (s *Sweeper) offerShards(ctx context.Context, whole job.Record, revision uint64) (done bool, err error) {
	done = true
	for i := range whole.Shards {
		shard := whole.Slot.WithShard(i+1, whole.Shards)
		rec, shardRevision, err := s.cfg.Ledger.Read(ctx, shard)
		switch {
		case errors.Is(err, job.ErrNotFound):
			if err := s.offerFirst(ctx, shard, whole, revision); err != nil {
				return false, err
			}
			done = false
			continue
		case err != nil:
			return false, err
		case rec.State.Final() || rec.State == job.Retrying && rec.RetryAt.After(s.cfg.Now()):
			continue
		}
		done = false
		if err := s.publish(ctx, rec, shardRevision); err != nil {
			return false, err
		}
	}
	return done, nil
}

// offerFirst offers a shard without a record, by the record of its whole slot at revision. That record
// does not say whether the slot is chained. The worker needs this if the job was edited,
// because then no schedule has the slot's instant.
func (s *Sweeper) offerFirst(ctx context.Context, shard job.Slot, whole job.Record, revision uint64) error {
	entry, _, err := s.cfg.Registry.Read(ctx, shard.Job)
	if err != nil && !errors.Is(err, job.ErrNotFound) && !exchange.IsUnreadable(err) {
		return err
	}
	chained := err == nil && entry.IsChained(shard)
	m := core.Message{Slot: shard, JobRevision: whole.JobRevision, Due: whole.Due, Event: whole.Event, Chained: chained}
	// A triggered run may come after others too. Due is then when the last of them succeeded. CaughtUp makes the
	// deadline count from the publication.
	m.CaughtUp = chained || err == nil && shard.Token != "" && len(entry.Job.After) > 0
	return s.send(ctx, whole.Queue, m, job.Record{Slot: shard, Payload: whole.Payload}, revision)
}

// payload returns a triggered run's own payload, else the definition's as it is now.
func (s *Sweeper) payload(ctx context.Context, rec job.Record) ([]byte, error) {
	if rec.Slot.Token != "" {
		return rec.Payload, nil
	}
	entry, _, err := s.cfg.Registry.Read(ctx, rec.Slot.Job)
	switch {
	case errors.Is(err, job.ErrNotFound), exchange.IsUnreadable(err):
		return nil, nil // the worker decides what to do with the slot
	case err != nil:
		return nil, err
	}
	return entry.Job.Payload, nil
}
