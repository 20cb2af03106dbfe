//go:build long && unix

package integration

import (
	"encoding/json"
	"testing"
	"time"
)

// A node behind a slow link knows the broker's time to half the round trip, says
// so, and is right about it, however the delay is divided between there and back.
// All clocks are this machine's, so that an estimate is as wrong as it is not zero.
func TestNodesBehindSlowLinksKnowTheBrokersTime(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	file := s.jobs(tick, `name: tick, schedule: "* * * * * *"`)
	var workers []*process
	const trip = 160 * time.Millisecond
	for name, there := range map[string]time.Duration{"there": trip, "back": 0, "both": trip / 2} {
		w := s.wire()
		w.slow(there, trip-there)
		workers = append(workers, s.over(w).worker(name, file))
	}
	for _, w := range workers {
		w.says("node is up")
	}
	eventually(t, "slots that run", func() bool { return count(s.touched(), "end ") > 5 })
	for _, name := range []string{"there", "back", "both"} {
		var offset, bound time.Duration
		eventually(t, "an estimate by "+name, func() bool {
			offset, bound = s.clockOf(s.node(name).Node)
			return bound > 0
		})
		t.Logf("%s: off by %v, bound %v", name, offset, bound)
		if offset.Abs() > bound+time.Millisecond {
			t.Errorf("%s is off by %v and says at most %v; the round trip is %v", name, offset, bound, trip)
		}
	}
	for _, r := range s.slots() {
		if r.Published.Before(r.Due.Add(-trip / 2)) {
			t.Errorf("%s was published %v before it was due", r.ID, r.Due.Sub(r.Published))
		}
	}
}

// clockOf is what the node's record says of its clock, and of the error of that.
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
