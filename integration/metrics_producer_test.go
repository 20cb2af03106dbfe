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

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// heard keeps what is sent on some subjects, as a stranger on the network sees it.
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

// count is how many of them there are that are so.
func (h *heard) count(so func(*nats.Msg) bool) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.all {
		if so(m) {
			n++
		}
	}
	return n
}

func anyMessage(*nats.Msg) bool { return true }

// stored is every message of the stream of slots, which no worker takes.
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

// The fleet was down for half an hour. What the one that comes back says of that is
// what it has published: late slots, and missed ones, a range of them included.
func TestMetricsOfAFleetThatWasDown(t *testing.T) {
	t.Parallel()
	s := newMeasuredSite(t)
	const down = 30 * time.Minute
	quarter := fmt.Sprintf(`schedule: "%d * * * * *"`, (time.Now().Second()+30)%60)
	file := s.jobs("", `name: seconds, schedule: "* * * * * *", catch_up: {policy: none}`,
		"name: few, "+quarter+", catch_up: {policy: all, max: 3}", "name: newest, "+quarter)
	first := s.worker("w0", file, "--no-work", "--lease", lease.String())
	first.says("node is up")
	eventually(t, "a watermark", func() bool {
		_, err := s.bucket("state").Get(t.Context(), "watermark")
		return err == nil
	})
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

// The stream takes nothing for a while: each publication that it refuses is made
// again, and the watermark waits for it.
func TestMetricsOfPublicationsThatAreRefused(t *testing.T) {
	t.Parallel()
	s := newMeasuredSite(t)
	sent := s.hear("cronce.slot.>")
	until := time.Now().Add(15 * time.Second).UTC().Truncate(time.Second)
	file := s.jobs("", `name: tick, schedule: "* * * * * *", until: `+until.Format(time.RFC3339))
	w := s.worker("w1", file, "--no-work")
	w.says("node is up")
	eventually(t, "a slot", func() bool { return len(s.stored()) > 0 })
	s.limit("cronce_slots", 1)
	published := len(s.stored())
	const lag = "cronce_watermark_lag_seconds"
	eventually(t, "refusals, and the watermark to stand", func() bool {
		return sent.count(anyMessage) >= published+4 && w.metrics()[lag] > 8
	})
	got := w.metrics()[lag]
	if behind := time.Since(s.watermark()).Seconds(); got > behind+1 {
		t.Errorf("the watermark is %v s behind, and said to be %v", behind, got)
	}
	s.limit("cronce_slots", -1)
	eventually(t, "all to be published", func() bool {
		all := s.stored()
		return all[len(all)-1].Header.Get("Cronce-Slot") == slotID("tick", until.Add(-time.Second))
	})
	published = len(s.stored())
	w.measured(map[string]float64{
		"cronce_producer_published_total": float64(published), "cronce_producer_folded_total": 0,
		"cronce_producer_retries_total": float64(sent.count(anyMessage) - published),
	})
}

// watermark is the instant that stands in the bucket.
func (s *site) watermark() time.Time {
	s.t.Helper()
	e, err := s.bucket("state").Get(s.t.Context(), "watermark")
	if err != nil {
		s.t.Fatal(err)
	}
	return readJSON[struct{ Time time.Time }](s.t, e.Value()).Time
}

// Two producers share the work, until one of them is killed. What one held for the
// other and dropped is what the other has published, but for the copies that were
// folded.
func TestMetricsOfProducersThatStandBy(t *testing.T) {
	t.Parallel()
	s := newMeasuredSite(t)
	const jobs, seconds = 40, 12
	from := time.Now().Add(8 * time.Second).UTC().Truncate(time.Second)
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
	eventually(t, "half of the time to be over", func() bool { look(); return time.Now().After(half) })
	// For a frozen producer they are held a quarter of a second: long enough to be seen.
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
		t.Errorf("%v copies were held at a time, of %d jobs", most, jobs)
	}
}

// The stream is purged while slots wait for their retry, and the next sweep
// finds that out.
func TestMetricsOfLostMessages(t *testing.T) {
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
	// Only what has stood still for half a minute is looked for, and a node looks
	// when it begins.
	eventually(t, "what is lost to look lost", func() bool { return time.Since(lost) > 34*time.Second })
	w := s.worker("w2", file)
	for _, id := range ids {
		if r := s.ends(id, "succeeded"); r.Attempt != 2 {
			t.Errorf("%s succeeded at attempt %d", id, r.Attempt)
		}
	}
	offers := sent.count(func(m *nats.Msg) bool { return strings.Contains(m.Header.Get("Nats-Msg-Id"), "/r") })
	if offers != len(ids) {
		t.Errorf("%d messages were offered again, want %d", offers, len(ids))
	}
	w.measured(map[string]float64{"cronce_sweep_offers_total": float64(offers)})
}
