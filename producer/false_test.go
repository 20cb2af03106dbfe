package producer

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// syncBuffer is a log of several producers.
type syncBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Buffer.String()
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Buffer.Write(p)
}

// impostor answers each announcement with those that lie returns.
func (b *broker) impostor(lie func(exchange.Announcement) []exchange.Announcement) (stop func()) {
	v := &view{broker: b}
	stop, _ = v.Listen(func(a exchange.Announcement) {
		for _, said := range lie(a) {
			_ = v.Announce(said)
		}
	})
	return stop
}

// vouching makes the given nodes known as live producers, the oldest first.
func vouching(names ...string) func(*Config, *view) {
	return func(c *Config, _ *view) {
		c.Vouched = func(node string) (time.Time, bool) {
			if slices.Contains(names, node) {
				return time.Time{}.Add(time.Duration(slices.Index(names, node)) * time.Second), true
			}
			return time.Time{}, false
		}
		c.Started, _ = c.Vouched(c.Node)
	}
}

// Five logins announce the present time, or one in the future, with the members and the registry
// that the producers announce. They use made-up names, older than any, or those of the producers.
// Every slot is published in time, since no producer believes them.
func TestFalseAnnouncementsDelayNoSlot(t *testing.T) {
	t.Parallel()
	madeUp := func(i int) string { return fmt.Sprint("a", i) }
	for name, tt := range map[string]struct {
		as    func(i int) string
		ahead time.Duration
	}{
		"made up":          {madeUp, time.Hour},
		"made up, for now": {madeUp, 0},
		"of the producers": {func(i int) string { return fmt.Sprintf("n%03d", i+1) }, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				start := time.Now()
				b.applyEach(20, job.CatchUpAll)
				var all []*running
				for range 3 {
					all = append(all, b.member(vouching("n001", "n002", "n003")))
				}
				advance(3*time.Second + 500*time.Millisecond)
				stop := b.impostor(func(a exchange.Announcement) (lies []exchange.Announcement) {
					if a.Kind != exchange.AnnounceHere || a.Time.After(time.Now()) || a.Node[0] == 'a' {
						return nil
					}
					for i := range maxActive {
						a.Node, a.Time = tt.as(i), time.Now().Add(tt.ahead)
						if started, ok := all[0].cfg.Vouched(a.Node); ok {
							a.Started = started
						} else {
							a.Started = start.Add(-time.Hour)
						}
						lies = append(lies, a)
					}
					return lies
				})
				advance(time.Minute)
				b.complete(20, start, defaultStandbyDelay+50*time.Millisecond)
				stop()
				stopAll(all)
			})
		})
	}
}

func TestAnnouncementWithAnotherStartThanItsRecordHasIsIgnored(t *testing.T) {
	t.Parallel()
	vouched := func(string) (time.Time, bool) { return epoch, true }
	f := newFleet(Config{Node: "n1", Started: epoch, Vouched: vouched}.withDefaults())
	for started, believed := range map[time.Time]bool{epoch.Add(-time.Second): false, epoch: true} {
		if p := f.receive(exchange.Announcement{Kind: exchange.AnnounceHere, Node: "n2", Started: started}, epoch); (p != nil) != believed {
			t.Errorf("an announcement with the start %v, by a record with %v, is believed: %v, want %v", started, epoch, p != nil, believed)
		}
	}
}

// liars announce, until stopped, that all slots up to now are published, with the members
// and the registry that producers of those names would announce. They publish nothing. With
// forge they also move the watermark.
func (b *broker) liars(forge bool, names []string, members []string, vouched func(string) (time.Time, bool)) (stop func()) {
	v := &view{broker: b}
	f := newFleet(Config{Node: "x"}.withDefaults())
	bd := testAgenda(position{})
	b.mu.Lock()
	for _, ev := range b.log {
		bd.apply(ev, time.Now())
	}
	revision := uint64(len(b.log))
	b.mu.Unlock()
	for _, name := range members {
		started, _ := vouched(name)
		f.receive(exchange.Announcement{Kind: exchange.AnnounceHere, Node: name, Started: started}, time.Now())
	}
	f.update(time.Now(), false, bd.digest)
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sleep(ctx, 100*time.Millisecond) == nil {
			for _, name := range names {
				started, _ := vouched(name)
				_ = v.Announce(exchange.Announcement{
					Kind: exchange.AnnounceHere, Node: name, Started: started, Time: time.Now(), Members: f.members, Registry: f.registry,
				})
			}
			if forge {
				_, at, _ := v.Read(ctx)
				_, _ = v.Write(ctx, exchange.Watermark{Time: time.Now(), Revision: revision, RegistryTime: time.Now(), Node: "liar"}, at)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// Five logins have live node records of producers. They are the oldest, so the real
// producers rest. All that they announce is right, except that they publish nothing. Every
// slot is published within a minute, even if they move the watermark, and the log names
// them.
func TestFalseProducersWithLiveRecordsLoseNoSlot(t *testing.T) {
	t.Parallel()
	for name, forge := range map[string]bool{"the watermark stands": false, "the watermark is forged": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				start := time.Now()
				b.applyEach(20, job.CatchUpLatest)
				var log syncBuffer
				logged := func(c *Config, _ *view) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }
				liars := []string{"a0", "a1", "a2", "a3", "a4"}
				vouched := vouching(append(slices.Clone(liars), "n001", "n002", "n003")...)
				var all []*running
				for range 3 {
					all = append(all, b.member(vouched, logged))
				}
				advance(70*time.Second + 500*time.Millisecond)
				stop := b.liars(forge, liars, liars, all[0].cfg.Vouched)
				advance(5 * time.Minute)
				b.complete(20, start, time.Minute)
				if late := b.lateSince(time.Now().Add(-3*time.Minute), defaultStandbyDelay+50*time.Millisecond); len(late) > 0 {
					t.Errorf("%d slots are late although the false producers were found out", len(late))
				}
				stop()
				stopAll(all)
				if !strings.Contains(log.String(), "announcement false") || !strings.Contains(log.String(), "[a0 a1 a2 a3 a4]") {
					t.Errorf("the log does not name them: %s", log.String())
				}
			})
		})
	}
}

// A restarted server may have forgotten the message ID of a slot that an active producer published.
// A resting one that audits the slot has it stored once more, which proves nothing.
func TestAuditAfterAQuickReconnectAccusesNoProducer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		b.applyEach(20, job.CatchUpAll)
		var log syncBuffer
		var all []*running
		for range maxActive + 1 {
			all = append(all, b.member(func(c *Config, _ *view) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }))
		}
		advance(70*time.Second + 500*time.Millisecond)
		for range 30 {
			b.restart()
			advance(10 * time.Second)
		}
		stopAll(all)
		if strings.Contains(log.String(), "announcement false") {
			t.Errorf("all publish what they announce: %s", log.String())
		}
	})
}

// One login with a live node record shares the work with three producers and publishes
// nothing. The others detect that and publish its share.
func TestFalseProducerAmongOthersIsDetected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		b.applyEach(20, job.CatchUpAll)
		var log syncBuffer
		logged := func(c *Config, _ *view) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }
		members := []string{"n000", "n001", "n002", "n003"}
		vouched := vouching(members...)
		var all []*running
		for range 3 {
			all = append(all, b.member(vouched, logged))
		}
		advance(70*time.Second + 500*time.Millisecond)
		stop := b.liars(false, members[:1], members, all[0].cfg.Vouched)
		for range 10 * 60 {
			if strings.Count(log.String(), "announcement false") == len(all) {
				break
			}
			advance(time.Second)
		}
		found := time.Now()
		advance(time.Minute)
		if late := b.lateSince(found, defaultStandbyDelay+50*time.Millisecond); len(late) > 0 {
			t.Errorf("%d slots are late although the false producer was found out", len(late))
		}
		stored := b.messages()
		for i := range 20 {
			name := fmt.Sprint("job", i)
			for _, id := range slots(t, every(name, "* * * * * *", ""), found, time.Now().Add(-time.Second)) {
				if _, ok := stored[id]; !ok {
					t.Errorf("%s is not published", id)
				}
			}
		}
		stop()
		stopAll(all)
		if !strings.Contains(log.String(), "announcement false") || !strings.Contains(log.String(), "[n000]") {
			t.Errorf("the log does not name it: %s", log.String())
		}
	})
}

// A resting producer publishes one slot every half a minute. It folds, which shows that the
// others publish. The producer reads the watermark as often.
func TestRestingProducerCostsAReadAndAFoldedPublicationEveryHalfMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		start := time.Now()
		b.applyEach(20, job.CatchUpAll)
		var log syncBuffer
		var all []*running
		for range maxActive + 1 {
			all = append(all, b.member(func(c *Config, _ *view) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }))
			advance(time.Second)
		}
		advance(time.Minute)
		b.take()
		b.reads(all[maxActive].view)
		const minutes = 10
		advance(minutes * time.Minute)
		published := 0
		for _, m := range b.take() {
			if m.Node == all[maxActive].cfg.Node {
				published++
			}
		}
		if published < minutes || published > 2*minutes {
			t.Errorf("it published %d slots in %d minutes", published, minutes)
		}
		if n := b.reads(all[maxActive].view); n > 2*minutes {
			t.Errorf("it read the watermark %d times in %d minutes", n, minutes)
		}
		b.complete(20, start, defaultStandbyDelay+50*time.Millisecond)
		stopAll(all)
		if strings.Contains(log.String(), "false") {
			t.Errorf("a producer is suspected: %s", log.String())
		}
	})
}

// A producer dies, and another login goes on announcing in its name while its record counts
// as alive. The sweep receives the slots that the other producer drops, and finds them
// unpublished.
func TestSlotsDroppedForAFalseAnnouncementReachTheSweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		start := time.Now()
		var mu sync.Mutex
		handed := map[string]bool{}
		note := func(c *Config, _ *view) {
			c.Stored = func(_ string, m core.Message) {
				mu.Lock()
				defer mu.Unlock()
				handed[m.Slot.ID()] = true
			}
		}
		b.applyEach(20, job.CatchUpAll)
		one, two := b.member(note), b.member(note)
		advance(3*time.Second + 500*time.Millisecond)
		stop := b.impostor(func(a exchange.Announcement) []exchange.Announcement {
			if a.Kind != exchange.AnnounceHere || a.Node != "n001" {
				return nil
			}
			a.Node = "n002"
			a.Started = start
			a.Time = time.Now()
			return []exchange.Announcement{a}
		})
		two.die()
		advance(20 * time.Second)
		stop()
		stored := b.messages()
		lost := 0
		for i := range 20 {
			name := fmt.Sprint("job", i)
			for _, id := range slots(t, every(name, "* * * * * *", ""), start, time.Now().Add(-time.Second)) {
				if _, ok := stored[id]; !ok {
					lost++
				}
				if mu.Lock(); !handed[id] {
					t.Errorf("%s did not reach the sweep; stored: %v", id, slices.Contains(slices.Collect(maps.Keys(stored)), id))
				}
				mu.Unlock()
			}
		}
		if lost == 0 {
			t.Error("no slot was dropped for the impostor: the test shows nothing")
		}
		one.stop()
	})
}

// A producer dies, and another login announces in its name slots that are not due yet. The
// other producer soon takes its share over, and logs a warning.
func TestAnnouncementOfSlotsNotYetDueIsIgnored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		start := time.Now()
		b.applyEach(20, job.CatchUpAll)
		var log bytes.Buffer
		logged := func(c *Config, _ *view) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }
		one, two := b.member(logged), b.member()
		advance(3*time.Second + 500*time.Millisecond)
		stop := b.impostor(func(a exchange.Announcement) []exchange.Announcement {
			if a.Kind != exchange.AnnounceHere || a.Node != "n001" {
				return nil
			}
			a.Node, a.Time = "n002", time.Now().Add(time.Hour)
			return []exchange.Announcement{a}
		})
		two.die()
		advance(20 * time.Second)
		b.complete(20, start, 2*defaultStandbyDelay)
		stop()
		one.stop()
		if !strings.Contains(log.String(), "announcement not believed") || !strings.Contains(log.String(), "node=n002") {
			t.Errorf("no warning is logged: %s", &log)
		}
	})
}

// Two producers run, and an audit has found that the second does not publish what it announces. It
// announces slots that are not due yet, and goes on announcing itself. It must not count again ten
// seconds later.
func TestAnnouncementOfSlotsNotYetDueShortensNoEarlierDistrust(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(Config{Node: "n001", Started: time.Now(), auditEvery: auditEvery})
		s := &session{Producer: &Producer{cfg: Config{Clock: &view{broker: newBroker(t)}, Logger: slog.New(slog.DiscardHandler)}}, fleet: f}
		s.outbox = newOutbox(s.Producer, f, testAgenda(position{}))
		said := exchange.Announcement{Node: "n002", Started: time.Now(), Kind: exchange.AnnounceHere}
		s.receive(said)
		s.outbox.concludeAudit(answer{item: &item{dueSlot: dueSlot{def: &definition{name: "j"}}, audited: []*peer{f.peers["n002"]}}, sent: time.Now()})
		ahead := said
		ahead.Time = time.Now().Add(time.Hour)
		s.receive(ahead)
		advance(distrustFor + time.Second)
		s.receive(said)
		if f.update(time.Now(), true, 0); len(f.active) != 1 {
			t.Errorf("%d producers are active, want one", len(f.active))
		}
	})
}
