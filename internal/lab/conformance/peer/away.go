package peer

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// away has a job with more late slots than are judged singly: the newest runs, the others are missed,
// and those beyond 1000 are one message.
func away(s *stage) {
	now := time.Now().UTC()
	began := now.Add(-25 * time.Hour).Truncate(time.Minute)
	const queue = "elsewhere" // nobody works on it: the client only publishes
	s.define("tick", value{"queue": queue}, value{"schedule": "* * * * *"})
	ticks := func(f frame) bool { return f.isPublish() && f.subject == slots+queue+".tick" }
	entry := s.get("jobs", "tick").value
	entry["since"] = began.Add(-time.Hour)
	revision := s.set("jobs", "tick", entry)
	before := s.set("state", "watermark", value{
		"v": 1, "time": began, "registry_revision": revision, "registry_time": began, "node": "peer-1-1-a", "x_shade": "blue",
	})
	inRange := func(f frame) bool { return ticks(f) && strings.HasPrefix(f.header("Nats-Msg-Id"), "tick:m.") }
	var one atomic.Value // of the slots that are judged singly
	healOne := s.unstored(func(f frame) bool {
		if !ticks(f) || f.header("Cronce-Missed") != "1" || inRange(f) {
			return false
		}
		one.CompareAndSwap(nil, f.header("Nats-Msg-Id"))
		return one.Load() == f.header("Nats-Msg-Id")
	})
	heal := s.unstored(inRange)
	s.launch("")
	s.await("P-2", "a late slot to be published as missed", func() bool { return one.Load() != nil })
	s.never("P-2", silence/2, func() string {
		if len(s.tap.frames(inRange)) > 0 {
			return fmt.Sprintf("the range is published, and %s is not acknowledged", one.Load())
		}
		return ""
	})
	healOne()
	s.await("P-2", "one message for the late slots beyond the newest 1000", func() bool { return len(s.tap.frames(inRange)) > 0 })
	s.never("P-3", silence/2, func() string {
		if s.watermark().revision != before {
			return fmt.Sprintf("the watermark was moved to %s before the oldest missed slots were acknowledged", s.watermark().text("time"))
		}
		return ""
	})
	first := s.tap.frames(inRange)[0]
	if id, want := first.header("Nats-Msg-Id"), "tick:m."+began.Add(time.Minute).Format(time.RFC3339); id != want {
		s.breaks("P-2", "the range is %s, want %s, the oldest slot that is not published", id, want)
	}
	heal()
	s.await("P-3", "the watermark to move past the missed slots", func() bool {
		t, _ := time.Parse(time.RFC3339Nano, s.watermark().text("time"))
		return now.Sub(t) < time.Minute
	})
	if mark := s.watermark(); mark.text("x_shade") != "blue" {
		s.breaks("V-3", "the watermark lost its member x_shade: %v", mark.value)
	}
	late := map[string]string{} // what is said of each late slot
	for _, f := range s.tap.frames(ticks) {
		id := f.header("Nats-Msg-Id")
		at, err := time.Parse(time.RFC3339, strings.TrimPrefix(id, "tick:"))
		if said := f.header("Cronce-Missed") + " " + f.header("Cronce-Caught-Up"); err == nil && said != " " {
			late[id] = said
			if f.at.Sub(at) < time.Minute-5*time.Second {
				s.breaks("P-2", "%s is not late, and is published as missed or caught up", id)
			}
		}
	}
	var newest string
	for id, said := range late {
		if newest = max(newest, id); said != "1 " && said != " 1" {
			s.breaks("P-2", "the late slot %s has Cronce-Missed and Cronce-Caught-Up %q: want one of them", id, said)
		}
	}
	caughtUp := 0
	for _, said := range late {
		if said == " 1" {
			caughtUp++
		}
	}
	if len(late) != 1000 || caughtUp != 1 || late[newest] != " 1" {
		s.breaks("P-2", "%d late slots were published singly, %d of them caught up, and the newest has Cronce-Missed and Cronce-Caught-Up %q: want 1000, and the newest alone caught up", len(late), caughtUp, late[newest])
	}
}
