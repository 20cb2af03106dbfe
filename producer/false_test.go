package producer

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/job"
)

// impostor is a login that announces, whenever a producer does, what it makes of that.
func (b *broker) impostor(lie func(job.Announcement) []job.Announcement) (stop func()) {
	v := &view{broker: b}
	stop, _ = v.Listen(func(a job.Announcement) {
		for _, said := range lie(a) {
			_ = v.Announce(said)
		}
	})
	return stop
}

// vouching knows those members as producers that live.
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

// Five logins announce a time in the future, for the members and the registry that the
// producers announce: under names that they made up, older than any, or under those of
// the producers themselves. Every slot is published in time, once nothing is believed of
// them; and it is said.
func TestFalseAnnouncementsSilenceNobody(t *testing.T) {
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
				for i := range 20 {
					b.apply(every(fmt.Sprint("job", i), "* * * * * *", job.CatchUpAll))
				}
				var all []*running
				for range 3 {
					all = append(all, b.member(vouching("n001", "n002", "n003")))
				}
				advance(3*time.Second + 500*time.Millisecond)
				stop := b.impostor(func(a job.Announcement) (lies []job.Announcement) {
					if a.Kind != job.AnnounceHere || a.Time.After(time.Now()) || a.Node[0] == 'a' {
						return nil
					}
					for i := range handful {
						a.Node, a.Started, a.Time = tt.as(i), start.Add(-time.Hour), time.Now().Add(tt.ahead)
						lies = append(lies, a)
					}
					return lies
				})
				advance(time.Minute)
				b.complete(20, start, DefaultStandbyDelay+50*time.Millisecond)
				stop()
				stopAll(all)
			})
		})
	}
}

// A producer dies, and another login goes on in its name, for as long as its record
// counts as alive: what is left to it is told to the sweep, which finds it unpublished.
func TestSlotsLeftToAFalseAnnouncementAreToldToTheSweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		start := time.Now()
		var mu sync.Mutex
		handed := map[string]bool{}
		note := func(c *Config, _ *view) {
			c.Handed = func(_ string, m job.Message) {
				mu.Lock()
				defer mu.Unlock()
				handed[m.Slot.ID()] = true
			}
		}
		for i := range 20 {
			b.apply(every(fmt.Sprint("job", i), "* * * * * *", job.CatchUpAll))
		}
		one, two := b.member(note), b.member(note)
		advance(3*time.Second + 500*time.Millisecond)
		stop := b.impostor(func(a job.Announcement) []job.Announcement {
			if a.Kind != job.AnnounceHere || a.Node != "n001" {
				return nil
			}
			a.Node = "n002"
			a.Started = start
			a.Time = time.Now()
			return []job.Announcement{a}
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
					t.Errorf("%s is not told to the sweep; stored: %v", id, slices.Contains(slices.Collect(maps.Keys(stored)), id))
				}
				mu.Unlock()
			}
		}
		if lost == 0 {
			t.Error("no slot was left to the impostor: the test shows nothing")
		}
		one.stop()
	})
}

// A producer dies, and another login announces in its name what is not due yet. Nothing
// is left to it for long, and it is said.
func TestAnnouncementOfWhatIsNotDueYetIsNotBelieved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		start := time.Now()
		for i := range 20 {
			b.apply(every(fmt.Sprint("job", i), "* * * * * *", job.CatchUpAll))
		}
		var log bytes.Buffer
		logged := func(c *Config, _ *view) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }
		one, two := b.member(logged), b.member()
		advance(3*time.Second + 500*time.Millisecond)
		stop := b.impostor(func(a job.Announcement) []job.Announcement {
			if a.Kind != job.AnnounceHere || a.Node != "n001" {
				return nil
			}
			a.Node, a.Time = "n002", time.Now().Add(time.Hour)
			return []job.Announcement{a}
		})
		two.die()
		advance(20 * time.Second)
		b.complete(20, start, 2*DefaultStandbyDelay)
		stop()
		one.stop()
		if !strings.Contains(log.String(), "announcement not believed") || !strings.Contains(log.String(), "node=n002") {
			t.Errorf("it does not say so: %s", &log)
		}
	})
}
