//go:build long && unix

package integration

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/proxy"
)

// A node behind a slow link estimates the offset of the broker's clock, and bounds the error of the estimate. The
// bound is right, however the delay is divided between the two directions, and no larger than the delay explains. All
// clocks are this machine's, so the true offset is zero.
func TestNodesBehindSlowLinksKnowTheBrokersTime(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	file := s.jobs(tick, `name: tick, schedule: "* * * * * *"`)
	var workers []*process
	const trip = 160 * time.Millisecond
	for name, there := range map[string]time.Duration{"there": trip, "back": 0, "both": trip / 2} {
		w := s.wire()
		w.Set(proxy.Fault{Delay: there, Late: trip - there})
		workers = append(workers, s.over(w).worker(name, file))
	}
	for _, w := range workers {
		w.says("node is up")
	}
	eventually(t, "slots that run", func() bool { return count(s.touched(), "end ") > 5 })
	for _, name := range []string{"there", "back", "both"} {
		var offset, bound time.Duration
		eventually(t, "the estimate of "+name, func() bool {
			offset, bound = s.clockOf(s.node(name).Node)
			return 0 < bound && bound <= trip // a busy machine may make the first estimates worse
		})
		t.Logf("%s: off by %v, bound %v", name, offset, bound)
		if offset.Abs() > bound+time.Millisecond {
			t.Errorf("the estimate of %s is off by %v, and its bound is %v; the round trip is %v", name, offset, bound, trip)
		}
	}
	for _, r := range s.slots() {
		if r.Published.Before(r.Due.Add(-trip / 2)) {
			t.Errorf("%s was published %v before it was due", r.ID, r.Due.Sub(r.Published))
		}
	}
}

// clockOf returns the offset of the node's clock, and the bound on its error, as the node's record has them.
func (s *site) clockOf(node string) (offset, bound time.Duration) {
	s.t.Helper()
	entry, err := s.bucket("nodes").Get(s.t.Context(), node)
	if err != nil {
		s.t.Fatal(err)
	}
	var value struct {
		Offset string `json:"clock_offset"`
		Error  string `json:"clock_error"`
	}
	if err := json.Unmarshal(entry.Value(), &value); err != nil {
		s.t.Fatal(err)
	}
	offset, err1 := time.ParseDuration(value.Offset)
	bound, err2 := time.ParseDuration(value.Error)
	if err1 != nil || err2 != nil {
		s.t.Fatalf("%s: %s", node, entry.Value())
	}
	return offset, bound
}
