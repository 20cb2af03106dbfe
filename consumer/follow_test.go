package consumer_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/consumer"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

func succeed(context.Context, job.Run) error { return nil }

func (b *bench) followers() []string { return slices.Sorted(maps.Keys(b.chained)) }

func TestASlotThatSucceedsIsFollowedByTheSameSlotOfTheJobsAfterIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "extract"}, succeed)
		b.handle(job.Job{Name: "load", After: []string{"extract"}}, succeed)
		b.handle(job.Job{Name: "report", After: []string{"load"}}, succeed)
		stop := b.run()
		slot := b.publish("extract")
		b.queue.add(core.Message{Slot: job.Slot{Job: "extract", Token: "by-hand"}, JobRevision: 1})
		b.settled(6)
		_ = stop()
		for _, name := range []string{"load", "report"} {
			for _, s := range []job.Slot{{Job: name, At: slot.At}, {Job: name, Token: "by-hand"}} {
				r := b.record(s)
				if r.State != job.Succeeded || r.Attempt != 1 {
					t.Errorf("%s is %s at attempt %d", s, r.State, r.Attempt)
				}
				before := s
				before.Job = map[string]string{"load": "extract", "report": "load"}[name]
				if done := b.record(before).Finished; !r.Due.Equal(done) {
					t.Errorf("%s is due at %v, want the end of %s, %v", s, r.Due, before, done)
				}
			}
		}
	})
}

// Another client may leave out the queue of a definition (V-5).
func TestASlotIsFollowedByAJobWhoseDefinitionNamesNoQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "extract"}, succeed)
		b.handle(job.Job{Name: "load", After: []string{"extract"}}, succeed)
		e := b.registry["load"]
		e.Job.Queue = ""
		b.registry["load"] = e
		stop := b.run()
		slot := b.publish("extract")
		time.Sleep(time.Minute)
		_ = stop()
		if got, want := b.followers(), []string{job.Slot{Job: "load", At: slot.At}.ID()}; !slices.Equal(got, want) {
			t.Errorf("published %v, want %v", got, want)
		}
	})
}

func TestNothingFollowsFromASlotThatDoesNotSucceed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "extract"}, func(context.Context, job.Run) error { return job.Permanent(errors.New("no")) })
		b.handle(job.Job{Name: "load", After: []string{"extract"}}, succeed)
		stop := b.run()
		b.publish("extract")
		b.settled(1)
		_ = stop()
		if got := b.followers(); len(got) > 0 {
			t.Errorf("published %v", got)
		}
	})
}

// The last of several to succeed publishes the slot.
func TestAJobAfterSeveralWaitsForAllOfThem(t *testing.T) {
	t.Parallel()
	for _, slow := range []string{"a", "b", "c"} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			for _, name := range []string{"a", "b", "c"} {
				b.handle(job.Job{Name: name}, func(_ context.Context, run job.Run) error {
					if name == slow {
						time.Sleep(10 * time.Second)
					}
					return nil
				})
			}
			b.handle(job.Job{Name: "load", After: []string{"a", "b", "c"}}, succeed)
			stop := b.run()
			at := b.publish("a").At
			b.publish("b")
			b.publish("c")
			time.Sleep(5 * time.Second)
			if got := b.followers(); len(got) > 0 {
				t.Errorf("before %s has succeeded %v is published", slow, got)
			}
			b.settled(4)
			_ = stop()
			if r := b.record(job.Slot{Job: "load", At: at}); r.State != job.Succeeded {
				t.Errorf("%s is %s", r.Slot, r.State)
			}
		})
	}
}

// Both end at the same moment, on two workers. Both writes are stored before either worker
// looks for the other's record.
func TestOfTwoThatSucceedAtOnceAtLeastOnePublishes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var both sync.WaitGroup
		both.Add(2)
		b.ledger.after = func(r job.Record) {
			if r.State == job.Succeeded && r.Slot.Job != "load" {
				both.Done()
				both.Wait()
			}
		}
		b.handle(job.Job{Name: "a"}, succeed)
		b.handle(job.Job{Name: "b"}, succeed)
		b.handle(job.Job{Name: "load", After: []string{"a", "b"}}, succeed)
		stop := b.run()
		other := b.cfg
		other.Node, other.Table = newNode("B"), consumer.NewTable()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		c := consumer.New(other)
		go func() { ended <- c.Run(ctx) }()
		at := b.publish("a").At
		b.publish("b")
		b.settled(3)
		_ = stop()
		cancel()
		<-ended
		if r := b.record(job.Slot{Job: "load", At: at}); r.State != job.Succeeded || r.Attempt != 1 {
			t.Errorf("%s is %s at attempt %d", r.Slot, r.State, r.Attempt)
		}
	})
}

// A worker dies after the outcome and before it publishes what follows. The message comes to
// another worker, which finds the outcome and publishes what follows before the ack.
func TestWhatFollowsIsSentWhenTheMessageComesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "extract"}, succeed)
		b.handle(job.Job{Name: "load", After: []string{"extract"}}, succeed)
		s := job.NewSlot("extract", time.Now())
		done := job.Record{Slot: s, Queue: "default", State: job.Succeeded, Attempt: 1, Node: "dead", Finished: time.Now(), Nonce: "dead#2"}
		b.write(done, 0)
		b.queue.add(core.Message{Slot: s, JobRevision: 1, Due: s.At})
		b.queue.add(core.Message{Slot: s, JobRevision: 1, Due: s.At}) // and once more, when it has followed
		stop := b.run()
		b.settled(3)
		_ = stop()
		if got := b.followers(); !slices.Equal(got, []string{"load:" + s.ID()[len("extract:"):]}) || b.copies != 1 {
			t.Errorf("published %v, and %d copies to be folded", got, b.copies)
		}
		if r := b.record(job.Slot{Job: "load", At: s.At}); r.State != job.Succeeded || r.Attempt != 1 {
			t.Errorf("%s is %s at attempt %d", r.Slot, r.State, r.Attempt)
		}
	})
}

func TestNoAckBeforeWhatFollowsIsOnTheBroker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		runs := 0
		b.handle(job.Job{Name: "extract"}, func(context.Context, job.Run) error { runs++; return nil })
		b.handle(job.Job{Name: "load", After: []string{"extract"}}, succeed)
		b.refuse = errors.New("the stream is full")
		stop := b.run()
		slot := b.publish("extract")
		v := b.settled(3)
		_ = stop()
		if v[0] != "later(2s) "+slot.ID() || v[1] != "ack "+slot.ID() && v[2] != "ack "+slot.ID() || runs != 1 {
			t.Errorf("verdicts %q after %d runs, want the message given back, then acked, after one run", v, runs)
		}
	})
}

func TestTheOutcomeOfTheWholeSplitSlotIsWhatOthersFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "extract", Shards: 3}, succeed)
		b.handle(job.Job{Name: "load", After: []string{"extract"}, Shards: 2}, succeed)
		stop := b.run()
		at := b.split("extract", 3).At
		b.settled(5)
		_ = stop()
		if got := b.followers(); len(got) != 2 {
			t.Errorf("published %v, want two shards of load", got)
		}
		if r := b.record(job.Slot{Job: "load", At: at}); r.State != job.Succeeded || r.Shards != 2 {
			t.Errorf("%s is %s in %d shards", r.Slot, r.State, r.Shards)
		}
	})
}

// No producer comes back to the slot when the pause ends: it must be recorded.
func TestTheTurnOfAPausedJobIsRecordedAsMissed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "extract"}, succeed)
		b.handle(job.Job{Name: "load", After: []string{"extract"}}, succeed)
		e := b.registry["load"]
		e.Paused = true
		b.registry["load"] = e
		stop := b.run()
		at := b.publish("extract").At
		b.settled(2)
		_ = stop()
		if r := b.record(job.Slot{Job: "load", At: at}); r.State != job.Missed || r.Error != "its turn came while its job was paused" {
			t.Errorf("%s is %s (%s)", r.Slot, r.State, r.Error)
		}
	})
}

func TestAJobFollowsNoSlotFromBeforeItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "extract"}, succeed)
		b.handle(job.Job{Name: "load", After: []string{"extract"}}, succeed)
		e := b.registry["load"]
		e.Time = time.Now().Add(time.Minute)
		b.registry["load"] = e
		stop := b.run()
		b.publish("extract")
		b.settled(1)
		_ = stop()
		if got := b.followers(); len(got) > 0 {
			t.Errorf("published %v", got)
		}
	})
}

// The overlap policy applies to a slot that follows as to any slot that is on time.
func TestAChainedSlotIsSkippedWhileTheOneBeforeItRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "extract"}, succeed)
		b.handle(job.Job{Name: "load", After: []string{"extract"}, Overlap: job.OverlapSkip}, func(context.Context, job.Run) error {
			time.Sleep(time.Minute)
			return nil
		})
		stop := b.run()
		first := b.publish("extract").At
		time.Sleep(2 * time.Second)
		second := b.publish("extract").At
		late := job.NewSlot("extract", time.Now().Add(-time.Hour))
		b.queue.add(core.Message{Slot: late, JobRevision: 1, Due: late.At, CaughtUp: true})
		b.settled(7) // the late one is acked twice: when it stands in the line, and when it has its outcome
		_ = stop()
		for at, want := range map[time.Time]job.State{first: job.Succeeded, second: job.Skipped, late.At: job.Succeeded} {
			if r := b.record(job.Slot{Job: "load", At: at}); r.State != want {
				t.Errorf("%s is %s (%s), want %s", r.Slot, r.State, r.Error, want)
			}
		}
	})
}
