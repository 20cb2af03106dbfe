//go:build long && unix

package integration

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// tick is an action that is over at once.
const tick = `echo "start $CRONCE_SLOT_ID $CRONCE_NODE" >>touched; echo "end $CRONCE_SLOT_ID" >>touched`

// The clocks of the fleet differ by up to two hours. All nodes use the broker's clock for slots: no slot is
// published before its time by that clock, and none is late because the clock of its producer is slow. No
// other test runs meanwhile, because this one measures.
func TestClocksOfTheFleetDifferByTwoHours(t *testing.T) {
	s := newServedSite(t)
	var jobs []string
	for i := range 8 { // so that each node is likely to be the one that publishes some
		jobs = append(jobs, fmt.Sprintf(`name: tick%d, schedule: "* * * * * *", overlap: allow`, i))
	}
	file := s.jobs(tick, jobs...)
	offsets := map[string]time.Duration{"slow": -90 * time.Second, "right": 0, "fast": 90 * time.Second, "ahead": 2 * time.Hour}
	var workers []*process
	for name, offset := range offsets {
		workers = append(workers, s.worker(name, file, "--clock-offset", offset.String(), "--max-clock-offset", "3h"))
	}
	for _, w := range workers {
		w.says("node is up")
	}
	joined := time.Now()
	eventually(t, "six seconds of slots", func() bool {
		for i := range jobs {
			if s.record(slotID(fmt.Sprintf("tick%d", i), joined.Add(6*time.Second).Truncate(time.Second))).State != "succeeded" {
				return false
			}
		}
		return true
	})
	for name, offset := range offsets {
		n := s.node(name)
		if off := n.ClockOffset + float64(offset.Milliseconds()); math.Abs(off) > 10_000 || n.Tzdata == "" {
			t.Errorf("%s: node ls shows an offset of %v ms and tzdata %q; its clock is %v ahead", n.Node, n.ClockOffset, n.Tzdata, offset)
		}
	}
	var names []string
	for i := range jobs {
		names = append(names, fmt.Sprintf("tick%d", i))
	}
	s.finish(workers, names...)
	for i := range jobs {
		s.checkNothingLost(fmt.Sprintf("tick%d", i), time.Second)
	}
	s.checkPunctual(joined)
}

// checkPunctual compares the broker's timestamp of each slot, and the worker's time of
// its start, with the due time. A busy machine makes single slots late. A clock that is
// not corrected makes all slots late that its node publishes or starts, by 90 s or more.
func (s *site) checkPunctual(since time.Time) {
	s.t.Helper()
	const wrong = 45 * time.Second // half of the smallest clock error of the fleet
	all, late, worst := 0, 0, time.Duration(0)
	soonest := map[string]time.Duration{} // of each node, from publication to start
	for _, r := range s.slots() {
		if r.Due.Before(since) || r.Started.IsZero() {
			continue // or it fell due when the fleet was about to stop
		}
		all++
		after := r.Published.Sub(r.Due)
		if after < 0 {
			s.t.Errorf("%s was published %v before it was due", r.ID, -after)
		}
		began := r.Started.Sub(r.Published)
		if began < -wrong {
			s.t.Errorf("%s began %v before it was published: its worker does not use the broker's clock", r.ID, -began)
		}
		if least, ok := soonest[r.Node]; !ok || began < least {
			soonest[r.Node] = began
		}
		if worst = max(worst, after); after > wrong {
			late++
		}
	}
	s.t.Logf("%d slots, the latest was published %v after it was due", all, worst)
	if late > all/2 {
		s.t.Errorf("%d of %d slots were published more than %v late", late, all, wrong)
	}
	for node, least := range soonest {
		if least > wrong {
			s.t.Errorf("%s starts slots %v after they were published: it does not use the broker's clock", node, least)
		}
	}
}

// A node whose clock is more than an hour off leaves publishing to others. It logs by how much the clock is
// off and how much is allowed, and goes on working.
func TestNodeWhoseClockIsNotBelievedDoesNotProduce(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	file := s.jobs(tick, `name: tick, schedule: "* * * * * *", overlap: allow`)
	wrong := s.worker("wrong", file, "--clock-offset", "2h")
	wrong.says("not producing")
	for _, word := range []string{"2h0m0", " ahead of the broker", "at most 1h0m0s", "--max-clock-offset"} {
		if !strings.Contains(wrong.stderr(), word) {
			t.Errorf("it does not say %q", word)
		}
	}
	if rows := s.slots(); len(rows) > 0 {
		t.Errorf("it published %+v", rows)
	}
	s.worker("right", file, "--no-work")
	eventually(t, "slots published by the one and run by the other", func() bool {
		return count(s.touched(), "end ") >= 3
	})
}
