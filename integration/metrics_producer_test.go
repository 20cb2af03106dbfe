//go:build long && unix

package integration

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// heard collects the messages that anyone publishes on a subject.
type heard struct {
	mu  sync.Mutex
	all []*nats.Msg
}

func (s *site) hear(subject string) *heard {
	s.t.Helper()
	h := &heard{}
	_, err := s.nc.Subscribe(subject, func(m *nats.Msg) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all = append(h.all, m)
	})
	if err == nil {
		err = s.nc.FlushTimeout(natstest.Patience)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return h
}

// count returns the number of messages for which match is true.
func (h *heard) count(match func(*nats.Msg) bool) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.all {
		if match(m) {
			n++
		}
	}
	return n
}

func anyMessage(*nats.Msg) bool { return true }

// stored returns all messages of the stream of slots. It needs a site without workers, which remove messages.
func (s *site) stored() (all []*jetstream.RawStreamMsg) {
	s.t.Helper()
	stream, err := s.js.Stream(s.t.Context(), "cronce_slots")
	if err != nil {
		s.t.Fatal(err)
	}
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		m, err := stream.GetMsg(s.t.Context(), seq)
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// The fleet was down for half an hour. The metrics of the node that comes back count the slots that it catches
// up and the missed ones, most of them in one range, as its messages do.
func TestMetricsCountSlotsOfTheTimeWithoutAFleet(t *testing.T) {
	t.Parallel()
	s := newMeasuredSite(t)
	const down = 30 * time.Minute
	minutely := fmt.Sprintf(`schedule: "%d * * * * *"`, (time.Now().Second()+30)%60)
	file := s.jobs("", `name: seconds, schedule: "* * * * * *", catch_up: {policy: none}`,
		"name: few, "+minutely+", catch_up: {policy: all, max: 3}", "name: newest, "+minutely)
	first := s.worker("w0", file, "--no-work", "--lease", lease.String())
	first.says("node is up")
	s.watermarkAt(0)
	term(first)
	s.setBack("state", "watermark", "time", down)
	for _, name := range []string{"seconds", "few", "newest"} {
		s.setBack("jobs", name, "since", 2*down)
	}
	before := len(s.stored())
	w := s.worker("w1", file, "--no-work")
	caughtUp, missed, ranges := 0, 0, 0
	eventually(t, "all to be published", func() bool {
		caughtUp, missed, ranges = 0, 0, 0
		for _, m := range s.stored()[before:] {
			n, _ := strconv.Atoi(m.Header.Get("Cronce-Missed"))
			missed += n
			if n > 1 {
				ranges++
			}
			if m.Header.Get("Cronce-Caught-Up") != "" {
				caughtUp++
			}
		}
		return caughtUp == 4 && missed > 1700
	})
	if ranges != 1 {
		t.Errorf("%d ranges of missed slots, want 1", ranges)
	}
	w.measured(map[string]float64{"cronce_producer_caught_up_total": float64(caughtUp), "cronce_producer_missed_total": float64(missed)})
}

// The stream refuses all messages for a while. The producer repeats each publication, and the watermark does
// not move meanwhile.
func TestMetricsCountRefusedPublicationsAndShowTheLagOfTheWatermark(t *testing.T) {
	t.Parallel()
	s := newMeasuredSite(t)
	sent := s.hear("cronce.slot.>")
	w := s.worker("w1", s.jobs("", `name: tick, schedule: "* * * * * *"`), "--no-work")
	w.says("node is up")
	eventually(t, "a slot", func() bool { return len(s.stored()) > 0 })
	s.limit("cronce_slots", 1)
	published := len(s.stored())
	const lag = "cronce_watermark_lag_seconds"
	eventually(t, "refusals, and a lag of the watermark", func() bool {
		return sent.count(anyMessage) >= published+4 && w.metrics()[lag] > 8
	})
	got := w.metrics()[lag]
	if behind := time.Since(s.watermark().Time).Seconds(); got > behind+1 {
		t.Errorf("the watermark lags by %v s, and the metric says %v", behind, got)
	}
	s.limit("cronce_slots", -1)
	s.command(0, "job", "pause", "tick")
	pause, err := s.bucket("jobs").Get(t.Context(), "tick")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "all slots before the pause to be published", func() bool {
		mark := s.watermark()
		return mark.Revision >= pause.Revision() && mark.Time.After(pause.Created())
	})
	published = len(s.stored())
	w.measured(map[string]float64{
		"cronce_producer_published_total": float64(published), "cronce_producer_folded_total": 0,
		"cronce_producer_retries_total": float64(sent.count(anyMessage) - published),
	})
}

// watermark returns the stored watermark. It is the zero value if there is none, or if the broker does not answer.
func (s *site) watermark() (w exchange.Watermark) {
	s.t.Helper()
	e, err := s.bucket("state").Get(s.t.Context(), "watermark")
	if err != nil {
		return w
	}
	if w, err = exchange.DecodeWatermark(e.Value()); err != nil {
		s.t.Fatal(err)
	}
	return w
}

// watermarkAt waits until a producer has written the watermark under this revision of the registry, or a later
// one.
func (s *site) watermarkAt(revision uint64) {
	s.t.Helper()
	eventually(s.t, fmt.Sprint("a watermark at revision ", revision), func() bool {
		w := s.watermark()
		return !w.Time.IsZero() && w.Revision >= revision
	})
}

// Two producers share the slots until one of them is killed. The survivor has held a copy of each slot that the
// other one published, and dropped it, except for the copies that the stream folded.
func TestMetricsCountCopiesOfProducersThatStandBy(t *testing.T) {
	t.Parallel()
	s := newMeasuredSite(t)
	const jobs, seconds = 40, 12
	from := soon().UTC()
	var plans []string
	for i := range jobs {
		plans = append(plans, fmt.Sprintf(`name: tick%d, schedule: "* * * * * *", from: %s, until: %s`, i,
			from.Format(time.RFC3339), from.Add(seconds*time.Second).Format(time.RFC3339)))
	}
	file := s.jobs("", plans...)
	a, b := s.worker("a", file, "--no-work"), s.worker("b", file, "--no-work")
	a.says("node is up")
	b.says("node is up")
	const standing, stoodBy = "cronce_producer_standing_slots", "cronce_producer_stood_by_total"
	half := from.Add(seconds / 2 * time.Second)
	most := 0.0
	look := func() { most = max(most, a.metrics()[standing]) }
	eventually(t, "half of the slots to be due", func() bool { look(); return time.Now().After(half) })
	// The copies for a frozen producer are held for a quarter of a second: long enough for a scrape to see them.
	b.signal(syscall.SIGSTOP)
	eventually(t, "copies to be held", func() bool { look(); return most > 0 })
	b.kill()
	eventually(t, "all to be published", func() bool { return len(s.stored()) == jobs*seconds })
	by := map[string]int{}
	for _, m := range s.stored() {
		name, _, _ := strings.Cut(m.Header.Get("Cronce-Node"), "-")
		by[name]++
	}
	got := a.metrics()
	folded := got["cronce_producer_folded_total"]
	if by["b"] < jobs || by["a"]+by["b"] != jobs*seconds || folded > float64(by["b"])/2 {
		t.Fatalf("published by %v; %v folded", by, folded)
	}
	a.measured(map[string]float64{
		stoodBy: float64(by["b"]) - folded, standing: 0,
		"cronce_producer_published_total": float64(by["a"]) + folded,
	})
	if most > 2*jobs {
		t.Errorf("%v copies were held at a time, want at most two for each of %d jobs", most, jobs)
	}
}

// The stream is purged while slots wait for their retry. The next pass of a sweep publishes a message for each.
func TestMetricsCountMessagesThatTheSweepOffers(t *testing.T) {
	t.Parallel()
	s := newMeasuredSite(t)
	instant := soon()
	var plans, ids []string
	for _, name := range []string{"one", "two", "three"} {
		plans = append(plans, "name: "+name+", retry: {backoff: 1s}, "+at(instant))
		ids = append(ids, slotID(name, instant))
	}
	file := s.jobs("[ $CRONCE_ATTEMPT -gt 1 ]", plans...)
	first := s.worker("w1", file)
	for _, id := range ids {
		s.ends(id, "retrying")
	}
	first.kill()
	stream, err := s.js.Stream(t.Context(), "cronce_slots")
	if err == nil {
		err = stream.Purge(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	lost := time.Now()
	sent := s.hear("cronce.slot.>")
	// A slot counts as lost when it should have moved half a minute ago. A node makes its first pass when it
	// starts.
	eventually(t, "the slots to count as lost", func() bool { return time.Since(lost) > 34*time.Second })
	w := s.worker("w2", file)
	for _, id := range ids {
		if r := s.ends(id, "succeeded"); r.Attempt != 2 {
			t.Errorf("%s succeeded at attempt %d", id, r.Attempt)
		}
	}
	offers := sent.count(func(m *nats.Msg) bool { return strings.Contains(m.Header.Get("Nats-Msg-Id"), "/r") })
	if offers != len(ids) {
		t.Errorf("%d messages were offered, want %d", offers, len(ids))
	}
	w.measured(map[string]float64{"cronce_sweep_offers_total": float64(offers)})
}
