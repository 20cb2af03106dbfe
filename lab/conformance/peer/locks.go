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

// Scenarios about locks.

func locking(f frame) bool { return f.isPublish() && f.subject == state+"lock.work" }

// holds writes the lock of a job, with one slot that has held a place since the given time.
func (s *stage) holds(name, id string, since time.Time) uint64 {
	return s.set("state", "lock."+name, value{"v": 1, "job": name, "holders": []value{{"id": id, "at": since.UTC(), "since": since.UTC()}}})
}

// holdsPlace checks that each slot of the job that the client claims holds one of the job's places.
func (s *stage) holdsPlace(name string, places int) {
	s.tap.rule(func(f frame) verdict {
		id, _ := f.body()["id"].(string)
		if !isClaim(f) || !strings.HasPrefix(id, name+":") {
			return pass
		}
		lock, err := s.lookup("state", "lock."+name)
		if holders, _ := lock.value["holders"].([]any); err == nil && (len(holders) > places || !strings.Contains(string(jsonOf(holders)), `"`+id+`"`)) {
			s.breaks("X-1", "%s, whose job has %d places, is claimed while its lock has the holders %v", id, places, holders)
		}
		return pass
	})
}

func guarded(s *stage) {
	s.define("work", value{"overlap": "queue"}, nil)
	gone := time.Now().UTC().Add(-25 * time.Hour) // older than the horizon and a lease, and there is no record
	s.set("state", "lock.work", value{"v": 1, "job": "work", "x_shade": "blue", "holders": []value{{"id": "work:@gone", "at": gone, "since": gone}}})
	s.launch("work")
	heal := s.unanswered(locking, false)
	s.holdsPlace("work", 1)
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
	if lock.text("x_shade") != "blue" {
		s.breaks("V-3", "the lock lost its member x_shade: %v", lock.value)
	}
	holder, _ := holders[0].(map[string]any)
	holder["since"] = time.Now().UTC().Add(time.Second) // it was reopened meanwhile
	s.set("state", "lock.work", lock.value)
	s.succeeds("C-6", id)
	s.acked(id)
	s.never("X-4", silence/4, func() string {
		if now := s.get("state", "lock.work"); !strings.Contains(string(jsonOf(now.value)), id) {
			return "the slot was taken out of the lock, although it has a newer since there"
		}
		return ""
	})

	s.wakes()
}

// wakes has a slot of another worker wait in the lock while the client's slot holds the place. Then the
// waiting slot must get the place.
func (s *stage) wakes() {
	const waiting = "work:@waiting"
	id := s.offer("work", "two", 500)
	s.starts("X-1", id)
	lock, now := s.get("state", "lock.work"), time.Now().UTC()
	lock.value["waiting"] = []value{{"id": waiting, "at": now, "since": now}}
	s.set("state", "lock.work", lock.value)
	s.await("X-5", waiting+", which waits in the lock, to get the place of "+id, func() bool {
		return strings.Contains(string(jsonOf(s.get("state", "lock.work").value["holders"])), waiting)
	})
	s.await("X-5", "a message for the worker of "+waiting+", which has a place now", func() bool {
		return len(s.tap.frames(func(f frame) bool {
			return f.isPublish() && f.subject == namespace+".lock.work" && string(f.data) == waiting
		})) > 0
	})
}

func lockLost(s *stage) {
	s.define("work", value{"overlap": "queue"}, nil)
	held := "work:@zero"
	r := running(held, "peer-1-1-a", 1)
	s.set("ledger", key(held), ended(r, "failed"))
	s.holds("work", held, time.Now())
	s.launch("work")
	var once atomic.Bool
	s.tap.rule(func(f frame) verdict {
		if locking(f) && once.CompareAndSwap(false, true) {
			s.set("ledger", key(held), retrying(r, time.Now().Add(time.Hour)))
			s.holds("work", held, time.Now())
		}
		return pass
	})
	id := s.offer("work", "one", 10)
	s.await("X-2", "a write of the lock, whose only holder has ended", func() bool { return len(s.tap.frames(locking)) > 0 })
	s.never("X-3", silence, func() string {
		if lock := s.get("state", "lock.work"); once.Load() && lock.value["holders"] != nil && !strings.Contains(string(jsonOf(lock.value["holders"])), held) {
			return held + " was taken out of the lock, although it was reopened before that"
		}
		return s.notStarted(id, "another slot holds the only place, and the client's write of the lock was refused")()
	})
	s.set("ledger", key(held), ended(r, "succeeded"))
	s.succeeds("X-2", id)
}

// lockUnclaimed has another worker put a slot into the lock, and not claim it yet.
func lockUnclaimed(s *stage) {
	s.define("work", value{"overlap": "queue"}, nil)
	held := "work:@zero"
	s.holds("work", held, time.Now())
	s.launch("work")
	id := s.offer("work", "one", 10)
	stays := func(must, why string) {
		s.never(must, silence, func() string {
			if lock := s.get("state", "lock.work"); !strings.Contains(string(jsonOf(lock.value["holders"])), held) {
				return held + " was taken out of the lock, although " + why
			}
			return s.notStarted(id, "another slot holds the only place")()
		})
	}
	stays("X-2", "it has not ended: no worker has claimed it yet")
	s.set("ledger", key(held), value{"v": 2, "id": held, "state": "succeeded"})
	stays("V-2", "its record has version 2")
	s.set("ledger", key(held), ended(running(held, "peer-1-1-a", 1), "succeeded"))
	s.succeeds("X-2", id)
}

// lockPlaces has a slot of another node hold one place of two, and the client's first slot the other one,
// also between its attempts.
func lockPlaces(s *stage) {
	s.define("work", value{"concurrency": 2, "attempts": 2, "timeout": "500ms", "backoff": "2s", "max_backoff": "2s"}, nil)
	const owner = "peer-1-1-a"
	s.peer(owner, nil)
	held := "work:@zero"
	s.set("ledger", key(held), running(held, owner, 1))
	s.holds("work", held, time.Now())
	s.holdsPlace("work", 2)
	s.launch("work")
	id := s.offer("work", "one", 30_000)
	s.starts("X-2", id)
	next := s.offer("work", "two", 10)
	s.await("C-2", "the second attempt of "+id+" to start", func() bool {
		if why := s.notStarted(next, "two slots that have not ended hold the two places")(); why != "" {
			s.fails("X-1", "%s", why)
		}
		return len(s.did("start", id)) > 1
	})
	s.set("ledger", key(held), ended(s.slot(held).value, "succeeded"))
	s.succeeds("X-2", next)
}

// lockMoves has another node run and reopen the slot just before the client claims it. Since then another
// slot holds the only place.
func lockMoves(s *stage) {
	s.define("work", value{"overlap": "queue"}, nil)
	held := "work:@zero"
	node := s.launch("work")
	var once atomic.Bool
	s.tap.rule(func(f frame) verdict {
		if isClaim(f) && once.CompareAndSwap(false, true) {
			id, _ := f.body()["id"].(string)
			s.set("ledger", key(id), retrying(running(id, "peer-1-1-a", 1), time.Now()))
			s.holds("work", held, time.Now())
		}
		return pass
	})
	id := s.offer("work", "one", 10)
	s.await("C-2", "a claim of "+id, once.Load)
	s.never("X-1", silence, func() string {
		if r := s.slot(id); r.text("state") == "running" {
			return "the slot was claimed without a place: after a claim that was lost, the lock was not asked again"
		}
		return s.notStarted(id, "another slot holds the only place")()
	})
	s.set("ledger", key(held), ended(running(held, "peer-1-1-a", 1), "succeeded"))
	s.succeeds("X-1", id)

	const adopted = "work:@adopted" // it is claimed by the client's node, and the client does not know that
	s.set("ledger", key(adopted), running(adopted, node, 1))
	s.holdsPlace("work", 1)
	s.offer("work", "adopted", 10)
	s.succeeds("X-1", adopted)
}

// replacing prepares a job under replace, with a slot that runs on another node. It returns that slot,
// its record and the record's revision, the slot that is to replace it, and a function that ends the
// node.
func (s *stage) replacing(owner string) (older string, r value, fence uint64, newer string, die func()) {
	s.define("work", value{"overlap": "replace"}, value{"schedule": everySecond})
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
		return s.notStarted(newer, "the older slot has not ended")()
	})
	replaced := ended(r, "cancelled")
	replaced["error"] = "replaced by " + newer
	s.set("ledger", key(older), replaced)
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
		s.await("X-2", id+" to wait in the lock", func() bool {
			if lock := s.get("state", "lock.work"); lock.waits(id) != nil {
				s.isNotOnTime(id, lock.waits(id), earliest)
				return true
			}
			return slices.Contains(final, s.slot(id).text("state"))
		})
	}
	if s.slot(older).revision != fence || len(s.tap.frames(func(f frame) bool { return f.isPublish() && f.body()["replaced"] == true })) > 0 {
		s.breaks("X-2", "%s was to be ended for slots that are not on time", older)
	}
	s.set("ledger", key(older), ended(r, "succeeded"))
	for _, id := range late {
		s.succeeds("X-2", id)
	}
}

// waits returns the lock's entry of a slot that waits in it, or nil.
func (v stored) waits(id string) value {
	list, _ := v.value["waiting"].([]any)
	for _, one := range list {
		if entry, _ := one.(map[string]any); entry["id"] == id {
			return entry
		}
	}
	return nil
}

// isNotOnTime checks the lock's entry of a slot that is not on time. For a triggered run, "at" is when
// its message was published, which was after earliest.
func (s *stage) isNotOnTime(id string, entry value, earliest time.Time) {
	if entry["on_time"] == true {
		s.fails("X-2", "%s is on_time in the lock: its message or its record says that it is not", id)
	}
	slot, err := job.ParseSlotID(id)
	s.must(err)
	at, err := time.Parse(time.RFC3339Nano, stored{value: entry}.text("at"))
	if isPlanned := slot.Token == ""; err != nil || isPlanned && !at.Equal(slot.At) || !isPlanned && (at.Before(earliest) || at.After(time.Now())) {
		s.breaks("X-2", "%s has at %v in the lock: want its instant, or when its message was published", id, entry["at"])
	}
}

// lockRenewed has a slot in the lock that had ended and was given a new start. Another worker may have
// seen the end, and be about to take the slot out. So the slot may be claimed only after a write that
// gives it a new since.
func lockRenewed(s *stage) {
	s.define("work", value{"overlap": "queue"}, nil)
	id, since := "work:@one", time.Now().UTC().Add(-time.Minute).Truncate(time.Second)
	s.holds("work", id, since)
	reopened := retrying(running(id, "peer-9-9-z", 1), time.Now())
	s.set("ledger", key(id), reopened)
	s.tap.rule(func(f frame) verdict {
		if isClaim(f) {
			if lock, err := s.lookup("state", "lock.work"); err == nil && strings.Contains(string(jsonOf(lock.value)), `"since":"`+since.Format(time.RFC3339)) {
				s.breaks("X-2", "%s is claimed again after its new start, with its old since in the lock: %v", id, lock.value)
			}
		}
		return pass
	})
	// Another slot runs elsewhere and is reopened just before the client claims it.
	const two = "work:@two"
	var holders atomic.Value
	s.tap.rule(func(f frame) verdict {
		if !isClaim(f) || f.body()["id"] != two {
			return pass
		}
		lock, _ := s.lookup("state", "lock.work")
		now := string(jsonOf(lock.value["holders"]))
		if holders.CompareAndSwap(nil, now) {
			reopened["id"] = two
			s.set("ledger", key(two), reopened)
		} else if holders.Load() == now {
			s.breaks("X-2", "%s is claimed again after its record has changed, with its old since in the lock: %s", two, now)
		}
		return pass
	})
	s.launch("work")
	s.offer("work", "one", 10, "Nats-Msg-Id", id+"/r2")
	s.succeeds("X-2", id)
	s.offer("work", "two", 10)
	s.succeeds("X-2", two)
	// The third one has no record: only its message says that its since may be from before a new start.
	const three = "work:@three"
	s.holds("work", three, since)
	s.offer("work", "three", 10, "Nats-Msg-Id", three+"/r2")
	s.succeeds("X-2", three)
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
