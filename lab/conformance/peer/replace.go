package peer

import (
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/job"
)

// Scenarios about slots that replace others of their job.

// replacing prepares a job under replace, with a slot that runs on another node. It returns that slot,
// its record and the record's revision, the slot that is to replace it, and a function that ends the
// node.
func (s *stage) replacing(owner string) (older string, r value, fence uint64, newer string, die func()) {
	s.define("work", value{"overlap": "replace", "payload": value{"ms": 10}}, value{"schedule": everySecond})
	die = s.peer(owner, nil)
	before := time.Now().UTC().Truncate(time.Second).Add(time.Second) // the definition has no earlier slots
	at := before.Add(time.Second)
	older, newer = job.NewSlot("work", before).ID(), job.NewSlot("work", at).ID()
	r = running(older, owner, 1)
	s.set("state", "lock.work", value{
		"v": 1, "job": "work", "newest": before, "holders": []value{{"id": older, "at": before, "on_time": true, "since": before}},
	})
	return older, r, s.set("ledger", key(older), r), newer, die
}

func lockReplaces(s *stage) {
	const owner = "peer-1-1-a"
	older, r, fence, newer, _ := s.replacing(owner)
	var asked atomic.Int32
	s.serve(owner, func(m *nats.Msg) {
		var q struct {
			ID       string `json:"id"`
			Fence    uint64 `json:"fence"`
			Claim    uint64 `json:"claim"`
			Replaced bool   `json:"replaced"`
			By       string `json:"by"`
		}
		switch err := json.Unmarshal(m.Data, &q); {
		case err != nil:
			s.breaks("X-2", "a request to the owner of the older slot cannot be read: %s", m.Data)
		case q.Claim > 0:
			_ = m.Respond([]byte(`{"v":1,"holds":true}`))
		case q.ID != older || q.Fence != fence || !q.Replaced || q.By != newer:
			s.breaks("X-2", "the owner of %s (fence %d) is asked %s: want its ID, its fence, replaced, and by %s", older, fence, m.Data, newer)
		case asked.Add(1) > 1: // the first request is not answered
			_ = m.Respond([]byte(`{"v":1,"ending":true}`))
		}
	})
	s.launch("work", "CRONCE_UNDER_TEST_PRODUCE=0")
	s.publish("work", newer, 10)
	s.await("X-2", "a request to the owner of the older slot to end it", func() bool { return asked.Load() > 0 })
	s.never("K-2", 2*silence, func() string {
		if s.slot(older).revision != fence {
			return "the record of the older slot was written over, although its owner lives"
		}
		if slices.Contains(s.answersOf(newer), "ack") {
			s.breaks("X-5", "the message of %s is acked, and the older slot that it replaces has not left the lock", newer)
		}
		return s.notStarted(newer, "the older slot has not ended")()
	})
	if n := asked.Load(); n < 3 {
		s.breaks("X-5", "the owner of %s, which has not ended, was asked %d times in %v to end it: want that repeated", older, n, 2*silence)
	}
	replaced := ended(r, "cancelled")
	replaced["error"] = "replaced by " + newer
	s.endsElsewhere(older, replaced, "cancelled")
	s.succeeds("X-2", newer)
}

// lockReplacesDead has the owner of the older slot die. Either slot's worker may end the older one.
func lockReplacesDead(s *stage) {
	older, _, _, newer, die := s.replacing("peer-1-1-a")
	die()
	s.launch("work", "CRONCE_UNDER_TEST_PRODUCE=0")
	s.publish("work", older, 10)
	s.publish("work", newer, 10)
	s.await("X-2", older+" to be cancelled: a newer slot replaces it, and its owner is dead", func() bool { return s.slot(older).text("state") == "cancelled" })
	if got := s.slot(older); got.text("error") != "replaced by "+newer {
		s.breaks("X-2", "the record of the older slot is %v: want the error %q", got.value, "replaced by "+newer)
	}
	s.succeeds("X-2", newer)
}

// lockReplacesRetrying has no node own the older slot: its next attempt is due in an hour.
func lockReplacesRetrying(s *stage) {
	older, r, fence, newer, _ := s.replacing("peer-1-1-a")
	_, err := s.put("ledger", key(older), retrying(r, time.Now().Add(time.Hour)), fence)
	s.must(err)
	s.launch("work", "CRONCE_UNDER_TEST_PRODUCE=0")
	s.publish("work", newer, 10)
	s.succeeds("X-2", newer)
	if got := s.slot(older); got.text("state") != "cancelled" || got.text("error") != "replaced by "+newer {
		s.breaks("X-2", "the record of the older slot, which no node owns, is %v: want cancelled, and the error %q", got.value, "replaced by "+newer)
	}
}

func lockReplacesLate(s *stage) {
	older, r, _, newer, _ := s.replacing("peer-1-1-a")
	var once atomic.Bool
	s.tap.rule(func(f frame) verdict {
		if locking(f) && once.CompareAndSwap(false, true) {
			s.set("ledger", key(older), ended(r, "succeeded"))
		}
		return pass
	})
	s.launch("work", "CRONCE_UNDER_TEST_PRODUCE=0")
	s.publish("work", newer, 10)
	s.await("X-2", "a write of the lock", once.Load)
	s.sleep(silence / 2)
	s.publish("work", older, 10, "Nats-Msg-Id", older+"/r999")
	s.succeeds("X-2", newer)
	if got := s.slot(older); got.text("state") != "succeeded" {
		s.breaks("K-1", "the older slot succeeded just before it was to be replaced, and its record was written over: %v", got.value)
	}
}

// lockNotOnTime has slots wait that look like the newest, and may displace nothing.
func lockNotOnTime(s *stage) {
	older, r, fence, newer, _ := s.replacing("peer-1-1-a")
	at, err := time.Parse(time.RFC3339, strings.TrimPrefix(newer, "work:"))
	s.must(err)
	s.holdsPlace("work", 1)
	s.launch("work", "CRONCE_UNDER_TEST_PRODUCE=0")
	var late []string
	for i, header := range [][2]string{{"Cronce-Backfill", "1"}, {"Cronce-Caught-Up", "1"}, {"Nats-Msg-Id", "/r2"}} {
		id := job.NewSlot("work", at.Add(time.Duration(i)*time.Second)).ID()
		late = append(late, id)
		if header[0] == "Nats-Msg-Id" {
			header[1] = id + header[1]
		}
		s.publish("work", id, 10, header[0], header[1])
	}
	begun := job.NewSlot("work", at.Add(3*time.Second)).ID()
	s.set("ledger", key(begun), retrying(running(begun, "peer-9-9-z", 1), time.Now()))
	s.publish("work", begun, 10)
	earliest := time.Now()
	late = append(late, begun, s.offer("work", "mine", 10))
	for _, id := range late {
		s.await("X-2", id+" to stand in the line", func() bool {
			e, err := s.entryOf("work", id)
			s.must(err)
			if e != nil {
				s.isNotOnTime(id, e, earliest)
			}
			return e != nil || slices.Contains(final, s.slot(id).text("state"))
		})
	}
	if s.slot(older).revision != fence || len(s.tap.frames(func(f frame) bool { return f.isPublish() && f.body()["replaced"] == true })) > 0 {
		s.breaks("X-2", "%s was to be ended for slots that are not on time", older)
	}
	s.endsElsewhere(older, r, "succeeded")
	for _, id := range late {
		s.succeeds("X-2", id)
	}
}

// isNotOnTime checks the entry of a slot that is not on time. For a triggered run, "at" is when its message
// was published, which was after earliest.
func (s *stage) isNotOnTime(id string, entry value, earliest time.Time) {
	if entry["on_time"] == true {
		s.fails("X-2", "%s is on_time in the line: its message or its record says that it is not", id)
	}
	slot, err := job.ParseSlotID(id)
	s.must(err)
	at, err := time.Parse(time.RFC3339Nano, stored{value: entry}.text("at"))
	if isPlanned := slot.Token == ""; err != nil || isPlanned && !at.Equal(slot.At) || !isPlanned && (at.Before(earliest) || at.After(time.Now())) {
		s.breaks("X-2", "%s has at %v in the line: want its instant, or when its message was published", id, entry["at"])
	}
}

// lockRenewed has a slot in the lock that had ended, which another node had run, and that was given a new start.
// A worker may have seen the end, and be about to take the slot out. So the slot may be claimed only after a
// write that puts this node into its place.
func lockRenewed(s *stage) {
	s.define("work", value{"overlap": "queue"}, nil)
	id, since, other := "work:@one", time.Now().UTC().Add(-time.Minute).Truncate(time.Second), "peer-9-9-z"
	s.set("state", "lock.work", value{"v": 1, "job": "work", "holders": []value{{"id": id, "at": since, "since": since, "node": other}}})
	s.set("ledger", key(id), retrying(running(id, other, 1), time.Now()))
	s.tap.rule(func(f frame) verdict {
		if isClaim(f) {
			if lock, err := s.lookup("state", "lock.work"); err == nil && lock.holder(id)["node"] != f.body()["node"] {
				s.breaks("X-2", "%s is claimed again after its new start, and its place has another node: %v", id, lock.value)
			}
		}
		return pass
	})
	s.launch("work")
	s.offer("work", "one", 10, "Nats-Msg-Id", id+"/r2")
	s.succeeds("X-2", id)
}

func foreignLock(s *stage) {
	s.define("work", value{"overlap": "queue"}, nil)
	s.define("other", value{"overlap": "queue"}, nil)
	before := map[string]uint64{
		"work":  s.holds("work", "other:@x", time.Now()),
		"other": s.set("state", "lock.other", value{"v": 1, "job": "work", "holders": []value{}}),
	}
	s.launch("work,other")
	for job := range before {
		s.offer(job, "one", 10)
	}
	s.never("M-2", silence, func() string {
		for job, revision := range before {
			if s.get("state", "lock."+job).revision != revision {
				return "the lock of " + job + ", which names another job or a slot of it, was written over"
			}
			if why := s.notStarted(job+":@one", "the lock of its job cannot be read")(); why != "" {
				return why
			}
		}
		return ""
	})
	for job := range before {
		s.set("state", "lock."+job, value{"v": 1, "job": job, "holders": []value{}})
		s.succeeds("X-2", job+":@one")
	}
}
