package sweep_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/fleet/sweep"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// backlog is a broker with a waiting slot of each of many jobs. It counts the requests.
type backlog struct {
	*pair
	slots []job.Slot
	lists int
	reads atomic.Int64
	sent  atomic.Int64
}

func (b *backlog) Waiting(context.Context, stream.WaitingFilter) iter.Seq2[stream.WaitingSlot, error] {
	b.lists++
	return func(yield func(stream.WaitingSlot, error) bool) {
		for i, slot := range b.slots {
			if !yield(stream.WaitingSlot{Message: core.Message{Slot: slot}, Queue: "default", Sequence: uint64(i + 1)}, nil) {
				return
			}
		}
	}
}

func (b *backlog) Changes(context.Context, *wire.Cursor) iter.Seq2[kv.Change, error] {
	return func(func(kv.Change, error) bool) {}
}

func (b *backlog) Read(context.Context, job.Slot) (job.Record, uint64, error) {
	b.reads.Add(1)
	return job.Record{}, 0, job.ErrNotFound
}

func (b *backlog) Publish(context.Context, string, core.Message, []byte) (bool, error) {
	b.sent.Add(1)
	return false, nil
}

// The requests of a pass grow with what is lost, not with what waits.
func TestAPassListsTheBacklogOnceAndReadsOnlySlotsThatAreNotInIt(t *testing.T) {
	t.Parallel()
	const jobs, lost = 20_000, 3
	b := &backlog{pair: &pair{}}
	s := newSweeper(sweep.Config{Node: "n", Ledger: b, Slots: b, Nodes: b, Ends: noEnds{}}, func() {})
	due := time.Now().Add(-time.Hour)
	for i := range jobs {
		slot := job.NewSlot(fmt.Sprint("job", i), due)
		s.Published("default", core.Message{Slot: slot, Due: due})
		if i >= lost {
			b.slots = append(b.slots, slot)
		}
	}
	if err := s.Pass(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if b.lists != 1 || b.reads.Load() != lost || b.sent.Load() != lost {
		t.Errorf("%d listings, %d reads, %d offers, want 1, %d and %d", b.lists, b.reads.Load(), b.sent.Load(), lost, lost)
	}
}

// slowList takes three minutes to list the messages.
type slowList struct{ *pair }

func (slowList) Waiting(ctx context.Context, _ stream.WaitingFilter) iter.Seq2[stream.WaitingSlot, error] {
	return func(yield func(stream.WaitingSlot, error) bool) {
		select {
		case <-time.After(3 * time.Minute):
		case <-ctx.Done():
			yield(stream.WaitingSlot{}, ctx.Err())
		}
	}
}

// countedEnds counts the passes that were completed.
type countedEnds struct {
	noEnds
	completed func()
}

func (e countedEnds) Write(ctx context.Context, end exchange.SweepEnd, revision uint64) (uint64, error) {
	e.completed()
	return e.noEnds.Write(ctx, end, revision)
}

func TestAPassThatTakesMinutesIsCompletedInTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &pair{killed: time.Now().Add(time.Hour)}
		ctx, end := context.WithTimeout(t.Context(), 30*time.Minute)
		defer end()
		completed := false
		ends := countedEnds{completed: func() { completed = true; end() }}
		newSweeper(sweep.Config{Node: "older", Ledger: ledger{p}, Slots: slowList{p}, Nodes: p, Ends: ends}, func() {}).Run(ctx)
		if !completed {
			t.Error("no pass was completed in half an hour")
		}
	})
}

// A worker repeats its requests to a stream that is gone without a log.
func TestAPassLogsHowToMendAPartThatIsGone(t *testing.T) {
	s := newSite(t)
	s.record(job.Record{Slot: slot(1), State: job.Running, Attempt: 1, Node: "gone"})
	if err := s.js.DeleteStream(t.Context(), "KV_cronce_ledger"); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	log := &firstLine{ends: end}
	cfg := s.config("n5")
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	sweep.New(cfg).Run(ctx)
	for _, want := range []string{"level=ERROR", "is gone", "cronce doctor", "cronce setup"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in %s", want, log.String())
		}
	}
}

// firstLine keeps what is logged, and calls ends after the first line.
type firstLine struct {
	strings.Builder
	ends func()
}

func (l *firstLine) Write(p []byte) (int, error) {
	defer l.ends()
	return l.Builder.Write(p)
}

func TestTheRequestsOfAPassDoNotGrowWithTheJobsThatHaveABacklog(t *testing.T) {
	s := newSite(t)
	const jobs = 2000
	due := time.Now().Add(-time.Hour)
	for i := range jobs {
		m := core.Message{Slot: job.NewSlot(fmt.Sprint("job", i), due), Due: due}
		s.publish(m)
		s.sweeper.Published("default", m)
	}
	var requests atomic.Int64
	nc := natstest.Connect(t, s.js.Conn().ConnectedUrl())
	if _, err := nc.Subscribe("$JS.API.>", func(*nats.Msg) { requests.Add(1) }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	s.pass()
	if err := s.js.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if n := requests.Load(); n == 0 || n > 40 {
		t.Errorf("%d requests for a backlog of %d jobs, want a few", n, jobs)
	}
	if len(s.offered) > 0 {
		t.Errorf("offered again: %d", len(s.offered))
	}
}
