package peer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/job"
)

// Scenarios about locks and the lines of their jobs.

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

// holder returns the lock's place of a slot, or nil.
func (v stored) holder(id string) value {
	holders, _ := v.value["holders"].([]any)
	for _, one := range holders {
		if h, _ := one.(map[string]any); h["id"] == id {
			return h
		}
	}
	return nil
}

// line returns the bodies of the messages in the line of a job, by sequence.
func (s *stage) line(name string) (entries map[uint64]value, err error) {
	stream, err := s.js.Stream(s.ctx, namespace+"_waiting")
	if err != nil {
		return nil, err
	}
	entries = map[uint64]value{}
	for n := stream.CachedInfo().State.FirstSeq; n <= stream.CachedInfo().State.LastSeq && n > 0; n++ {
		m, err := stream.GetMsg(s.ctx, n)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if m.Subject == waits+name {
			entries[n] = frame{data: m.Data}.body()
		}
	}
	return entries, nil
}

// entryOf returns the entry of a slot in the line of its job, or nil.
func (s *stage) entryOf(name, id string) (value, error) {
	entries, err := s.line(name)
	for _, e := range entries {
		if e["id"] == id {
			return e, nil
		}
	}
	return nil, err
}

// waiting reports whether the lock of a job says that slots may stand in the line.
func (s *stage) waiting(name string) bool {
	lock, err := s.lookup("state", "lock."+name)
	return err == nil && lock.value["waiting"] == true
}

// stands puts a slot into the line of its job, as another worker does before it looks at the lock. It returns the
// revision of the record, and the sequence of the entry.
func (s *stage) stands(id string, at time.Time, members value) (revision, sequence uint64) {
	r := value{"v": 1, "id": id, "queue": "default", "state": "waiting", "attempt": 0, "node": "peer-9-9-z", "published": at.UTC(), "payload": []byte(`{"ms":10}`)}
	slot, err := job.ParseSlotID(id)
	s.must(err)
	if slot.Token == "" {
		delete(r, "payload")
		r["due"] = slot.At
	}
	e := value{"v": 1, "id": id, "at": at.UTC()}
	maps.Copy(r, members)
	maps.Copy(e, members)
	revision = s.set("ledger", key(id), r)
	return revision, s.enters(slot.Job, jsonOf(e))
}

// enters puts a message into the line of a job.
func (s *stage) enters(name string, entry []byte) (sequence uint64) {
	ack, err := s.js.Publish(s.ctx, waits+name, entry)
	s.must(err)
	return ack.Sequence
}

// endsElsewhere has a slot that another node ran end there: its record gets an outcome, and its message is
// delivered to the client, because that node died before it took the slot out of the lock.
func (s *stage) endsElsewhere(id string, r value, state string) {
	s.set("ledger", key(id), ended(r, state))
	name, _, _ := strings.Cut(id, ":")
	s.publish(name, id, 10, "Nats-Msg-Id", id+"/r999")
}

func guarded(s *stage) {
	s.define("work", value{"overlap": "queue"}, nil)
	s.set("state", "lock.work", value{"v": 1, "job": "work", "x_shade": "blue", "holders": []value{}})
	node := s.launch("work")
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
	if h := lock.holder(id); h == nil || h["node"] != node {
		s.fails("X-1", "the handler runs on node %s, and the lock is %v", node, lock.value)
	}
	if lock.text("x_shade") != "blue" {
		s.breaks("V-3", "the lock lost its member x_shade: %v", lock.value)
	}
	lock.holder(id)["node"] = "peer-1-1-a" // it was reopened there meanwhile
	s.set("state", "lock.work", lock.value)
	s.succeeds("C-6", id)
	s.acked(id)
	s.never("X-7", silence/4, func() string {
		if s.get("state", "lock.work").holder(id) == nil {
			return "the slot was taken out of the lock, although another node has its place"
		}
		return ""
	})
	s.set("state", "lock.work", value{"v": 1, "job": "work", "holders": []value{}})
	two := s.offer("work", "two", 10)
	s.succeeds("X-1", two)
	s.acked(two)
}

func standing(f frame) bool { return f.isPublish() && f.subject == waits+"work" }

// lockStands has a slot of another node hold the place. The entry of the client's slot is stored, and not answered.
func lockStands(s *stage) {
	s.define("work", value{"overlap": "queue"}, nil)
	held := "work:@zero"
	r := running(held, "peer-1-1-a", 1)
	s.peer("peer-1-1-a", nil)
	s.set("ledger", key(held), r)
	s.holds("work", held, time.Now())
	s.tap.rule(func(f frame) verdict {
		if standing(f) {
			id, _ := f.body()["id"].(string)
			if v, err := s.lookup("ledger", key(id)); err == nil && v.text("state") != "waiting" {
				s.breaks("X-4", "the entry of %s is published while its record is %q: want waiting", id, v.text("state"))
			}
		}
		return pass
	})
	heal := s.unanswered(standing, false)
	s.launch("work")
	id := s.offer("work", "one", 10)
	s.await("X-4", "a second copy of the entry of "+id+", which is not answered", func() bool { return len(s.tap.frames(standing)) > 1 })
	revision := s.slot(id).revision
	for _, f := range s.tap.frames(standing) {
		if want := fmt.Sprintf("%s/w%d", id, revision); f.header("Nats-Msg-Id") != want || f.body()["id"] != id {
			s.breaks("X-4", "the entry of %s, whose record is at revision %d, has the message ID %q and the body %s: want %q", id, revision, f.header("Nats-Msg-Id"), f.data, want)
		}
	}
	s.never("X-4", silence/4, func() string {
		if slices.Contains(s.answersOf(id), "ack") {
			return "the message of " + id + " is acked, and its entry is not answered"
		}
		return ""
	})
	heal()
	s.acked(id)
	s.never("X-1", silence/2, s.notStarted(id, "another slot holds the only place"))
	s.endsElsewhere(held, r, "succeeded")
	s.await("X-7", held+", which has ended, to be taken out of the lock", func() bool { return s.get("state", "lock.work").holder(held) == nil })
	s.succeeds("X-8", id)
}

// lockLook has the holder leave after the client's slot was refused a place, and before its entry is in the line. So
// the worker of the holder finds the line empty.
func lockLook(s *stage) {
	s.define("work", value{"overlap": "queue"}, nil)
	held := "work:@zero"
	s.set("ledger", key(held), running(held, "peer-1-1-a", 1))
	s.holds("work", held, time.Now())
	var once atomic.Bool
	s.tap.rule(func(f frame) verdict {
		if standing(f) && once.CompareAndSwap(false, true) {
			s.set("ledger", key(held), ended(running(held, "peer-1-1-a", 1), "succeeded"))
			s.set("state", "lock.work", value{"v": 1, "job": "work", "holders": []value{}})
		}
		return pass
	})
	s.launch("work", "CRONCE_UNDER_TEST_PRODUCE=0")
	s.succeeds("X-4", s.offer("work", "one", 10))
}

// lockLineAgain has a slot enter the line just before the client writes that it is empty. The worker of that slot has
// found waiting set before, and does not look again.
func lockLineAgain(s *stage) {
	s.define("work", value{"overlap": "queue"}, nil)
	const late = "work:@late"
	var once atomic.Bool
	s.tap.rule(func(f frame) verdict {
		if locking(f) && f.body()["waiting"] == nil && s.waiting("work") && s.willBeWon(f, "state", "lock.work") && once.CompareAndSwap(false, true) {
			s.stands(late, time.Now(), nil)
		}
		return pass
	})
	s.launch("work", "CRONCE_UNDER_TEST_PRODUCE=0")
	s.starts("X-1", s.offer("work", "one", 1500))
	lock := s.get("state", "lock.work")
	lock.value["waiting"] = true // since some slot stood in the line that has been cancelled
	s.set("state", "lock.work", lock.value)
	s.await("X-9", "a write of the lock without waiting", once.Load)
	s.succeeds("X-9", late)
}

func lockCalls(s *stage) {
	s.define("work", value{"overlap": "queue"}, nil)
	s.holdsPlace("work", 1)
	s.launch("work", "CRONCE_UNDER_TEST_PRODUCE=0")
	id := s.offer("work", "one", 2000)
	s.starts("X-1", id)
	now := time.Now()
	const gone, first, second = "work:@gone", "work:@first", "work:@second"
	s.enters("work", []byte("not an entry"))
	s.enters("work", jsonOf(value{"v": 1, "id": "other:@x", "at": now.Add(-time.Hour).UTC()}))
	s.stands(gone, now.Add(-3*time.Minute), nil)
	s.set("ledger", key(gone), ended(running(gone, "peer-1-1-a", 1), "cancelled"))
	s.stands(second, now.Add(-time.Minute), nil)
	revision, last := s.stands(first, now.Add(-2*time.Minute), nil)
	lock := s.get("state", "lock.work")
	lock.value["waiting"] = true
	s.set("state", "lock.work", lock.value)
	s.tap.rule(func(f frame) verdict {
		if !locking(f) || !s.willBeWon(f, "state", "lock.work") {
			return pass
		}
		before, err := s.lookup("state", "lock.work")
		after := stored{value: f.body()}.holder(first)
		if err == nil && before.holder(id) != nil && (stored{value: f.body()}).holder(id) == nil && (after == nil || after["node"] != nil) {
			s.breaks("X-8", "the write with which %s leaves its lock does not give the place to %s, without a node: %s", id, first, f.data)
		}
		return pass
	})
	s.succeeds("C-6", id)
	s.starts("X-8", first)
	if len(s.did("start", second)) > 0 {
		s.breaks("X-8", "%s, which is younger than %s, was called before it", second, first)
	}
	called := s.tap.frames(func(f frame) bool {
		return f.isPublish() && f.header("Cronce-Slot") == first && strings.HasPrefix(f.subject, slots)
	})
	if want := fmt.Sprintf("%s/r%d", first, revision+2); len(called) == 0 || called[0].header("Nats-Msg-Id") != want || called[0].subject != slots+"default.work" || string(called[0].data) != `{"ms":10}` {
		s.breaks("X-8", "the messages of %s, which was called, are %v: want the message ID %q, and the payload of its record", first, called, want)
	}
	s.succeeds("X-8", second)
	s.await("X-8", "the lock to say that the line is empty", func() bool {
		lock := s.get("state", "lock.work")
		return lock.value["waiting"] == nil && lock.number("line") > int(last)
	})
	if r := s.slot(gone); r.text("state") != "cancelled" {
		s.breaks("K-1", "the slot %s had its outcome when it was in the line, and is %q now", gone, r.text("state"))
	}
}

// lockDisplaced has the client take out a holder that has ended. The older one of the slots that stand in the line was
// displaced: it gets a message without a place, and is skipped.
func lockDisplaced(s *stage) {
	s.define("work", value{"overlap": "latest", "payload": value{"ms": 10}}, value{"schedule": everySecond})
	held := "work:@zero"
	at := time.Now().UTC().Truncate(time.Second).Add(time.Second)
	older, newest := job.NewSlot("work", at).ID(), job.NewSlot("work", at.Add(time.Second)).ID()
	r := running(held, "peer-1-1-a", 1)
	s.set("ledger", key(held), r)
	s.stands(older, at, value{"on_time": true})
	s.stands(newest, at.Add(time.Second), value{"on_time": true})
	s.set("state", "lock.work", value{"v": 1, "job": "work", "waiting": true, "newest": at.Add(time.Second), "holders": []value{{"id": held, "at": at, "since": at}}})
	s.holdsPlace("work", 1)
	s.launch("work", "CRONCE_UNDER_TEST_PRODUCE=0")
	s.endsElsewhere(held, r, "succeeded")
	s.succeeds("X-8", newest)
	s.await("X-8", older+", which a newer slot has displaced, to be skipped", func() bool { return s.slot(older).text("state") == "skipped" })
}

func lockLeaves(s *stage) {
	s.define("work", value{"overlap": "queue"}, nil)
	s.launch("work")
	id := s.offer("work", "one", 500)
	s.starts("X-1", id)
	heal := s.unanswered(locking, true)
	s.succeeds("C-6", id)
	s.never("X-6", silence, func() string {
		if slices.Contains(s.answersOf(id), "ack") {
			return "the message of " + id + " is acked, and the write with which it leaves its lock is not stored"
		}
		return ""
	})
	heal()
	s.acked(id)
	if s.get("state", "lock.work").holder(id) != nil {
		s.breaks("X-6", "the message of %s is acked, and it is in its lock", id)
	}
}

func lockLost(s *stage) {
	s.define("work", value{"overlap": "queue"}, nil)
	held := job.NewSlot("work", time.Now().UTC().Truncate(time.Second)).ID() // of a run, no ack may come while its record is reopened
	r := running(held, "peer-1-1-a", 1)
	s.holds("work", held, time.Now())
	var once atomic.Bool
	s.tap.rule(func(f frame) verdict {
		if locking(f) && (stored{value: f.body()}).holder(held) == nil && once.CompareAndSwap(false, true) {
			s.set("ledger", key(held), retrying(r, time.Now().Add(time.Hour)))
			s.set("state", "lock.work", value{"v": 1, "job": "work", "holders": []value{{"id": held, "at": time.Now().UTC(), "since": time.Now().UTC(), "node": "peer-2-2-b"}}})
		}
		return pass
	})
	s.launch("work", "CRONCE_UNDER_TEST_PRODUCE=0")
	s.endsElsewhere(held, r, "failed")
	s.await("X-7", "a write of the lock that takes out "+held+", which has ended", once.Load)
	id := s.offer("work", "one", 10)
	s.never("X-3", silence, func() string {
		if s.get("state", "lock.work").holder(held) == nil {
			return held + " was taken out of the lock, although it was reopened before that"
		}
		return s.notStarted(id, "another slot holds the only place, and the client's write of the lock was refused")()
	})
	s.set("ledger", key(held), ended(r, "succeeded"))
	s.publish("work", held, 10, "Nats-Msg-Id", held+"/r998")
	s.succeeds("X-7", id)
}

// lockSkips has another worker put a slot into the lock, and not claim it yet.
func lockSkips(s *stage) {
	s.define("work", value{"overlap": "skip"}, value{"schedule": everySecond})
	at := time.Now().UTC().Truncate(time.Second).Add(time.Second)
	ids := []string{job.NewSlot("work", at).ID(), job.NewSlot("work", at.Add(time.Second)).ID(), job.NewSlot("work", at.Add(2*time.Second)).ID()}
	held := "work:@zero"
	s.holds("work", held, at.Add(-time.Minute))
	s.launch("work", "CRONCE_UNDER_TEST_PRODUCE=0")
	s.publish("work", ids[0], 10)
	s.await("X-2", ids[0]+" to be skipped: an older slot has the place, which no worker has claimed yet", func() bool { return s.slot(ids[0]).text("state") == "skipped" })
	s.set("ledger", key(held), value{"v": 2, "id": held, "state": "succeeded"})
	s.publish("work", ids[1], 10)
	s.never("V-2", silence, func() string {
		if s.get("state", "lock.work").holder(held) == nil || s.slot(ids[1]).value != nil {
			return ids[1] + " was decided, although the record of the holder has version 2"
		}
		return ""
	})
	s.set("ledger", key(held), ended(running(held, "peer-1-1-a", 1), "succeeded"))
	s.succeeds("X-2", ids[1])
	s.publish("work", ids[2], 10)
	s.succeeds("X-2", ids[2])
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
	s.endsElsewhere(held, s.slot(held).value, "succeeded")
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
	s.endsElsewhere(held, running(held, "peer-1-1-a", 1), "succeeded")
	s.succeeds("X-1", id)

	const adopted = "work:@adopted" // it is claimed by the client's node, and the client does not know that
	s.set("ledger", key(adopted), running(adopted, node, 1))
	s.holdsPlace("work", 1)
	s.offer("work", "adopted", 10)
	s.succeeds("X-1", adopted)
}
