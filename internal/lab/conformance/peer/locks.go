package peer

import (
	"slices"
	"strings"
	"time"
)

// Scenarios about locks, and about what follows from an outcome.

func guarded(s *stage) {
	s.define("work", value{"overlap": "queue"}, nil)
	s.launch("work")
	locking := func(f frame) bool { return f.isPublish() && f.subject == state+"lock.work" }
	heal := s.tap.unanswered(locking, false)
	s.tap.rule(func(f frame) verdict {
		if f.writes(ledger, "running") {
			if lock, err := s.lookup("state", "lock.work"); err == nil && !strings.Contains(string(jsonOf(lock.value)), "work:@one") {
				s.breaks("X-1", "a slot of a guarded job is claimed, and does not stand in the lock: %v", lock.value)
			}
		}
		return pass
	})
	id := s.offer("work", "one", 1500)
	s.await("X-3", "a write of the lock", func() bool { return len(s.tap.frames(locking)) > 0 })
	s.never("X-3", silence/2, func() string {
		if s.slot(id).revision > 0 {
			return "the slot was claimed, although the write of the lock was not answered"
		}
		return ""
	})
	heal()
	s.starts("X-1", id)
	lock := s.get("state", "lock.work")
	holders, _ := lock.value["holders"].([]any)
	if len(holders) != 1 {
		s.fails("X-1", "the handler runs, and the lock has the holders %v", holders)
	}
	holder, _ := holders[0].(map[string]any)
	holder["since"] = time.Now().UTC().Add(time.Second) // it was reopened meanwhile
	s.set("state", "lock.work", lock.value)
	s.succeeds("C-6", id)
	s.await("C-9", "the message to be acked", func() bool { return s.inStream() == 0 })
	s.never("X-4", silence/4, func() string {
		if now := s.get("state", "lock.work"); !strings.Contains(string(jsonOf(now.value)), id) {
			return "the slot was taken out of the lock, although its stay there is a newer one"
		}
		return ""
	})
}

func foreignLock(s *stage) {
	s.define("work", value{"overlap": "queue"}, nil)
	now := time.Now().UTC()
	s.set("state", "lock.work", value{"v": 1, "job": "work", "holders": []value{{"id": "other:@x", "at": now, "since": now}}})
	s.launch("work")
	id := s.offer("work", "one", 10)
	before := s.get("state", "lock.work").revision
	s.never("M-2", silence, func() string {
		if s.get("state", "lock.work").revision != before {
			return "a lock that names a slot of another job was written over"
		}
		return s.notStarted(id, "the lock of its job cannot be read")()
	})
	s.set("state", "lock.work", value{"v": 1, "job": "work", "holders": []value{}})
	s.succeeds("X-2", id)
}

func follows(s *stage) {
	s.define("work", nil, nil)
	s.define("next", nil, value{"schedule": "", "after": []string{"work"}})
	s.launch("work,next")
	next := func(f frame) bool { return f.isPublish() && f.subject == slots+"default.next" }
	heal := s.tap.unanswered(next, true)
	id := s.offer("work", "one", 10)
	s.await("C-2", id+" to succeed", func() bool { return s.slot(id).text("state") == "succeeded" })
	s.await("F-2", "the slot of the job that follows", func() bool {
		if slices.Contains(s.answersOf(id), "ack") {
			s.fails("F-1", "the message of %s was acked before the slot that follows was stored", id)
		}
		return len(s.tap.frames(next)) > 0
	})
	s.never("F-1", silence/2, func() string {
		if slices.Contains(s.answersOf(id), "ack") {
			return "the message of " + id + " was acked, although the slot that follows is not stored"
		}
		return ""
	})
	heal()
	s.succeeds("F-2", "next:@one")
}
