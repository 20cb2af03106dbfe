package consumer_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// split publishes the slot in n shards, due now.
func (b *bench) split(name string, n int) job.Slot {
	s := job.NewSlot(name, time.Now())
	for i := range n {
		b.queue.add(core.Message{Slot: s.WithShard(i+1, n), JobRevision: 1, Due: s.At})
	}
	return s
}

func TestEachShardHasARecordAndTheSlotsOutcomeIsTheirs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fails []int // shards
		state job.State
		error string
	}{
		"all succeed": {nil, job.Succeeded, ""},
		"one fails":   {[]int{2}, job.Failed, "shard 2of3: no"},
		"two fail":    {[]int{2, 3}, job.Failed, "2 of 3 shards failed; shard 2of3: no"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.handle(job.Job{Name: "report", Shards: 3, Overlap: job.OverlapSkip}, func(_ context.Context, run job.Run) error {
					if run.Shards != 3 {
						t.Errorf("shard %d of %d", run.Shard, run.Shards)
					}
					time.Sleep(time.Duration(run.Shard) * time.Second)
					if slices.Contains(c.fails, run.Shard) {
						return job.Permanent(errors.New("no"))
					}
					return nil
				})
				stop := b.run()
				slot := b.split("report", 3)
				time.Sleep(2500 * time.Millisecond)
				if r := b.record(slot); r.State != job.Running || r.Shards != 3 {
					t.Errorf("in the middle the whole is %s of %d shards", r.State, r.Shards)
				}
				next := b.split("report", 3) // overlap counts slots
				b.settled(6)
				_ = stop()
				if r := b.record(slot); r.State != c.state || r.Error != c.error {
					t.Errorf("the whole is %s (%s), want %s (%s)", r.State, r.Error, c.state, c.error)
				}
				for i := range 3 {
					if r := b.record(slot.WithShard(i+1, 3)); !r.State.Final() || r.Attempt != 1 {
						t.Errorf("shard %d is %s at attempt %d", i+1, r.State, r.Attempt)
					}
				}
				if r := b.record(next); r.State != job.Skipped {
					t.Errorf("the next slot is %s, want skipped: the lock is the slot's, not a shard's", r.State)
				}
				if l, _, err := b.cfg.Locks.Read(t.Context(), "report"); err != nil || len(l.Holders) > 0 {
					t.Errorf("the lock is held by %v, %v", l.Holders, err)
				}
			})
		})
	}
}

// The worker that wrote the last shard's outcome died before it wrote the slot's.
func TestAShardThatComesAgainConcludesItsSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "report", Shards: 2}, func(context.Context, job.Run) error { return nil })
		slot := job.NewSlot("report", time.Now())
		for _, r := range []job.Record{
			{Slot: slot, State: job.Running, Shards: 2}, {Slot: slot.WithShard(1, 2), State: job.Succeeded}, {Slot: slot.WithShard(2, 2), State: job.Succeeded},
		} {
			r.Nonce = r.Slot.ID()
			b.write(r, 0)
		}
		stop := b.run()
		b.queue.add(core.Message{Slot: slot.WithShard(2, 2), JobRevision: 1, Due: slot.At})
		b.settled(1)
		_ = stop()
		if r := b.record(slot); r.State != job.Succeeded {
			t.Errorf("the whole is %s", r.State)
		}
	})
}

// A shard is retried without the others.
func TestAShardIsRetriedForItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		runs := map[int]int{}
		b.handle(job.Job{Name: "report", Shards: 3}, func(_ context.Context, run job.Run) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			if runs[run.Shard]++; run.Shard == 2 && run.Attempt == 1 {
				return errors.New("not yet")
			}
			return nil
		})
		stop := b.run()
		slot := b.split("report", 3)
		time.Sleep(5 * time.Second)
		_ = stop()
		if r := b.record(slot); r.State != job.Succeeded || r.Attempt != 2 {
			t.Errorf("the whole is %s at attempt %d, want succeeded at 2", r.State, r.Attempt)
		}
		if runs[1] != 1 || runs[2] != 2 || runs[3] != 1 {
			t.Errorf("ran %v", runs)
		}
	})
}

// A producer that does not know of shards publishes the whole. It does not run in place of the
// shards, and the slot is not lost if no other producer publishes these.
func TestAMessageForTheWholeOfASplitSlotIsLeftUntilItsShardsCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var said strings.Builder // of this test's one worker: read when that has ended
		b.cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
		var ran []int
		b.cfg.Concurrency = 1
		b.handle(job.Job{Name: "report", Shards: 2}, func(_ context.Context, run job.Run) error {
			ran = append(ran, run.Shard)
			return nil
		})
		stop := b.run()
		whole := b.publish("report")
		time.Sleep(time.Minute)
		if _, _, err := b.ledger.Read(t.Context(), whole); !errors.Is(err, job.ErrNotFound) {
			t.Errorf("the whole has a record: %v", err)
		}
		for i := range 2 {
			b.queue.add(core.Message{Slot: whole.WithShard(i+1, 2), JobRevision: 1, Due: whole.At})
		}
		time.Sleep(2 * time.Minute)
		if acks := slices.DeleteFunc(b.queue.verdicts(), func(v string) bool { return !strings.HasPrefix(v, "ack") }); len(acks) != 3 {
			t.Errorf("acked %q, want both shards and then the whole", acks)
		}
		if r := b.record(whole); r.State != job.Succeeded || r.Shards != 2 {
			t.Errorf("the whole is %s of %d shards", r.State, r.Shards)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if slices.Sort(ran); !slices.Equal(ran, []int{1, 2}) {
			t.Errorf("ran shards %v, want 1 and 2", ran)
		}
		if n := strings.Count(said.String(), "the message is for a whole slot, but its job splits slots"); n != 3 {
			t.Errorf("said so %d times, want in the first three deliveries:\n%s", n, said.String())
		}
	})
}
