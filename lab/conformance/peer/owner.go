package peer

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/job"
)

// Scenarios about nodes: their trust, and their death.
var ownerScenarios = []Scenario{
	{"heartbeat-unanswered", []string{"L-1"}, "a heartbeat is stored, and its answer is lost", heartbeatUnanswered},
	{"unborn", []string{"L-3", "L-8"}, "the client's first heartbeats are lost, and then it cannot learn the broker's clock", unborn},
	{"owner-dead", []string{"L-5", "L-6", "C-2"}, "the owner of a slot falls silent", ownerDead},
	{"owner-silent", []string{"V-3", "L-5", "L-6", "K-2", "C-2"}, "owners of slots have been silent since before the client started: one has no record, one has stopped, one was declared dead in the last attempt of its slot, and one writes a heartbeat just before it is declared dead", ownerSilent},
	{"owner-slow", []string{"V-2", "K-2", "C-14", "L-1", "L-5"}, "the owners of slots live, and answer nothing, an error, in the words of another version or that the handler outlived its context, and the client's watch does not deliver their heartbeats; then they disown the slots", ownerSlow},
	{"owner-holds", []string{"K-2"}, "the owner of a slot that is older than the horizon lives, and says that it holds the slot; then, that its handler outlived its context", ownerHolds},
	{"owner-moves", []string{"K-2"}, "another node takes the slot over just before the client, from its dead owner, and claims it again while it is asked", ownerMoves},
	{"fenced", []string{"L-2", "C-11"}, "the client is declared dead while its handler runs", fenced},
	{"older-incarnation", []string{"L-3", "C-1"}, "the client is declared dead while its handler runs, which does not end with its context", olderIncarnation},
	{"lapsed", []string{"L-3", "L-4", "C-5", "W-5"}, "a heartbeat is answered at its second copy, and the next ones are lost for longer than a lease, as are the answers to two claims; then all arrive again", lapsed},
	{"frozen", []string{"L-3", "L-4", "C-11"}, "the client is frozen for longer than a lease while its handler runs", frozen},
	{"ask-lapsed", []string{"C-8", "C-11"}, "another worker asks for the owner of a slot, whose trust has lapsed and whose outcome was not answered", askLapsed},
	{"stop", []string{"L-7", "L-9"}, "the client is asked to stop when nothing runs, and then while a handler runs, and the outcome of another one is not answered", stopping},
	{"read-again", []string{"P-5", "L-5", "K-2", "C-6", "X-1"}, "whatever the client reads twice before it writes is changed between the two reads: a record before a claim, and before an outcome, that of a silent node, a lock and the watermark", readAgain},
	{"other-layout", []string{"B-3", "B-4"}, "a stream and a queue's consumer have other settings than the client would give them", otherLayout},
}

// nodeRecord is the record of a live worker, with other members or further ones.
func nodeRecord(name string, members value) value {
	v := value{
		"v": 1, "node": name, "state": "alive", "started": time.Now().UTC(), "lease": lease.String(), "producer": false, "worker": true, "running": 1,
		"clock_offset": "0s", "clock_error": "1ms", "tzdata": "2020a", "version": "peer",
	}
	maps.Copy(v, members)
	return v
}

// peer acts as a node that lives until the returned function is called. It answers no requests.
func (s *stage) peer(name string, members value) (die func()) {
	v := nodeRecord(name, members)
	revision := s.set("nodes", name, v)
	ended := make(chan struct{})
	dead := make(chan struct{})
	go func() {
		defer close(dead)
		for {
			select {
			case <-ended:
				return
			case <-s.ctx.Done():
				return
			case <-time.After(lease / 10):
			}
			next, err := s.put("nodes", name, v, revision)
			if err != nil {
				if s.ctx.Err() == nil {
					s.breaks("L-5", "node %s was declared dead although its heartbeats came every %v: %v", name, lease/10, err)
				}
				return
			}
			revision = next
		}
	}()
	var once atomic.Bool
	die = func() {
		if once.CompareAndSwap(false, true) {
			close(ended)
			<-dead
		}
	}
	s.cleanups = append(s.cleanups, die)
	return die
}

// serve answers the requests to a node as which the scenario acts.
func (s *stage) serve(node string, answer func(*nats.Msg)) {
	_, err := s.nc.Subscribe(namespace+".node."+node+".cancel", answer)
	s.must(err)
	s.must(s.nc.Flush())
}

func jsonOf(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(stop{err})
	}
	return data
}

func ownerDead(s *stage) {
	s.works()
	const owner = "peer-1-1-a"
	die := s.peer(owner, nil)
	id := "work:@one"
	claimed := s.set("ledger", key(id), running(id, owner, 1))
	s.offer("work", "one", 10)
	s.never("K-2", silence, s.notStarted(id, "its owner lives"))
	die()
	silent := time.Now()
	s.await("C-2", owner+" to be declared dead", func() bool { return s.get("nodes", owner).text("state") != "alive" })
	if after := time.Since(silent); after < lease-lease/5 {
		s.breaks("L-5", "%s was declared dead %v after its last heartbeat: want at least %v", owner, after.Round(time.Millisecond), lease)
	}
	if n := s.get("nodes", owner); n.text("state") != "fenced" || n.text("fenced_by") == "" || n.text("fenced_at") == "" {
		s.breaks("L-5", "the record of the dead node is %v: want fenced, fenced_by and fenced_at", n.value)
	}
	r := s.succeeds("C-2", id)
	attempts, _ := r.value["attempts"].([]any)
	first, _ := attempts[0].(map[string]any)
	if r.number("attempt") != 2 || len(attempts) != 2 || uint64(stored{value: first}.number("fence")) != claimed || first["error"] == nil || first["finished"] == nil {
		s.breaks("C-2", "the record after the takeover is %v: want attempt 2, and the first attempt closed with fence %d, an error and finished", r.value, claimed)
	}
	s.stays("L-6", silence/4, "nodes", owner, "the record of the dead node was written over")
}

// betweenReads calls change, once, before the server gets the second of two reads of a key in a short
// time: a client may decide by the first, and take only the revision from the second.
func (s *stage) betweenReads(bucket, key string, ready func() bool, change func()) (changed *atomic.Bool) {
	const soon = lease / 10
	changed = &atomic.Bool{}
	var mu sync.Mutex
	var last time.Time
	subject := "$KV." + namespace + "_" + bucket + "." + key
	s.tap.rule(func(f frame) verdict {
		if !f.isPublish() || !strings.Contains(f.subject, ".GET.KV_"+namespace+"_"+bucket) || !strings.Contains(f.subject+string(f.data), subject) || !ready() {
			return pass
		}
		mu.Lock()
		defer mu.Unlock()
		if f.at.Sub(last) < soon && !changed.Load() {
			change()
			changed.Store(true)
		}
		last = f.at
		return pass
	})
	return changed
}

func readAgain(s *stage) {
	const other, silent = "peer-1-1-a", "peer-2-2-b"
	s.define("work", nil, nil)
	s.define("guarded", value{"overlap": "queue"}, nil)
	s.define("tick", value{"queue": "elsewhere"}, value{"schedule": everySecond})
	s.peer(other, nil)
	s.peer(silent, nil)()
	began := time.Now()
	always := func() bool { return true }

	ahead := time.Now().UTC().Add(time.Minute)
	mark := s.betweenReads("state", "watermark", func() bool { return s.watermark().value != nil }, func() {
		s.set("state", "watermark", value{"v": 1, "time": ahead, "registry_revision": 1_000_000, "node": other})
	})
	s.betweenReads("state", "lock.guarded", always, func() { s.holds("guarded", "guarded:@other", time.Now()) })
	var beat atomic.Pointer[time.Time]
	s.betweenReads("nodes", silent, func() bool { return time.Since(began) > lease }, func() {
		now := time.Now()
		s.set("nodes", silent, s.get("nodes", silent).value)
		beat.Store(&now)
	})
	s.tap.rule(func(f frame) verdict {
		if b := beat.Load(); b != nil && f.at.Sub(*b) < lease && f.writes(nodes+silent, "fenced") && s.willBeWon(f, "nodes", silent) {
			s.breaks("L-5", "%s is declared dead %v after a heartbeat, at the revision of that", silent, f.at.Sub(*b).Round(time.Millisecond))
		}
		return pass
	})
	taken := map[string]func() string{}
	takes := func(id string, ready func() bool, headers ...string) {
		var revision atomic.Uint64
		s.betweenReads("ledger", key(id), ready, func() { revision.Store(s.set("ledger", key(id), running(id, other, 2))) })
		taken[id] = func() string {
			if r := s.slot(id); revision.Load() > 0 && r.revision != revision.Load() {
				return fmt.Sprintf("%s is %s by %s: the record at revision %d, of %s, was written over by a client that had read an earlier one", id, r.text("state"), r.text("node"), revision.Load(), other)
			}
			return ""
		}
		s.offer("work", strings.TrimPrefix(id, "work:@"), 300, headers...)
		s.await("C-2", id+" to succeed, or to be another node's", func() bool { return s.slot(id).text("state") == "succeeded" || revision.Load() > 0 })
	}
	s.launch("work,guarded")
	const claim, outcome, owned = "work:@claim", "work:@outcome", "work:@owned"
	s.set("ledger", key(claim), retrying(running(claim, "peer-9-9-z", 1), time.Now()))
	// A client may claim a first delivery without a read, but not a slot that is offered anew.
	takes(claim, func() bool { return s.slot(claim).text("state") == "retrying" }, "Nats-Msg-Id", claim+"/r2")
	takes(outcome, func() bool { return len(s.did("end", outcome)) > 0 && s.slot(outcome).text("state") == "running" })
	s.offer("guarded", "mine", 10)
	s.set("ledger", key(owned), running(owned, silent, 1))
	s.offer("work", "owned", 10)
	s.succeeds("C-2", owned)
	s.never("P-5", silence/4, func() string {
		for id, must := range map[string]string{claim: "K-2", outcome: "C-6"} {
			if why := taken[id](); why != "" {
				s.breaks(must, "%s", why)
			}
		}
		if t := s.watermark().instant("time"); mark.Load() && t.Before(ahead) {
			return fmt.Sprintf("the watermark went back from %v to %v", ahead, t)
		}
		return ""
	})
}

// ownerSilent has owners whose last heartbeat is older than a lease when the client first looks at them.
// What the client has not seen itself proves nothing.
func ownerSilent(s *stage) {
	s.define("work", nil, nil)
	const absent, stopped = "peer-3-3-c", "peer-4-4-d"
	leases := map[string]time.Duration{"peer-1-1-a": lease, "peer-2-2-b": lease * 3 / 2, absent: lease, stopped: 0}
	for owner, length := range leases {
		switch owner {
		case absent:
		case stopped:
			s.peer(owner, value{"state": "stopped"})()
		default:
			s.peer(owner, value{"lease": length.String(), "x_shade": "blue"})()
		}
		s.set("ledger", key("work:@"+owner), running("work:@"+owner, owner, 1))
	}
	const spent, gone = "work:@spent", "peer-5-5-e" // a slot in its last attempt, and its owner
	s.peer(gone, value{"state": "fenced", "fenced_by": "peer-6-6-f", "fenced_at": time.Now().UTC()})()
	s.set("ledger", key(spent), running(spent, gone, 3))
	before := map[string]uint64{stopped: s.get("nodes", stopped).revision, gone: s.get("nodes", gone).revision}
	s.sleep(lease + silence/4)
	began := time.Now()
	const alive = "peer-1-1-a" // its next heartbeat comes just before it is declared dead
	var beat atomic.Pointer[time.Time]
	s.tap.rule(func(f frame) verdict {
		for owner, length := range leases {
			if !f.writes(nodes+owner, "fenced") || !s.willBeWon(f, "nodes", owner) {
				continue
			}
			seen := began
			if again := beat.Load(); owner == alive && again != nil {
				seen = *again
			}
			if after := f.at.Sub(seen); after < length {
				s.breaks("L-5", "%s is declared dead by a client that has seen it silent for %v at most: want at least %v", owner, after.Round(time.Millisecond), length)
			}
			if owner == alive && beat.Load() == nil {
				now := time.Now()
				beat.Store(&now)
				s.set("nodes", owner, s.get("nodes", owner).value)
			}
		}
		if isClaim(f) && f.body()["id"] == "work:@"+alive && s.willBeWon(f, "ledger", key("work:@"+alive)) {
			if n, err := s.lookup("nodes", alive); err == nil && n.text("state") == "alive" {
				s.breaks("K-2", "a slot of %s is claimed, which lives: its heartbeat came before it was declared dead", alive)
			}
		}
		return pass
	})
	s.launch("work")
	for owner := range leases {
		s.offer("work", owner, 10)
	}
	for owner := range leases {
		if r := s.succeeds("C-2", "work:@"+owner); r.number("attempt") != 2 {
			s.breaks("C-2", "the record after the takeover is %v: want attempt 2", r.value)
		}
	}
	s.offer("work", "spent", 10)
	s.await("C-2", spent+", whose attempts are spent, to end", func() bool { return s.slot(spent).text("state") != "running" || len(s.did("start", spent)) > 0 })
	if r := s.slot(spent); r.text("state") != "failed" || r.number("attempt") != 3 {
		s.breaks("C-2", "%s, whose owner died in the last of its 3 attempts, is %s with attempt %d: want failed with attempt 3", spent, r.text("state"), r.number("attempt"))
	}
	for owner, revision := range before {
		if s.get("nodes", owner).revision != revision {
			s.breaks("L-6", "the record of %s, which had stopped or was declared dead, was written over", owner)
		}
	}
	if n := s.get("nodes", "peer-1-1-a"); n.text("x_shade") != "blue" {
		s.breaks("V-3", "the record of the dead node lost its member x_shade: %v", n.value)
	}
	if n := s.get("nodes", absent); n.text("state") != "fenced" || n.text("started") != "0001-01-01T00:00:00Z" {
		s.breaks("L-5", "the record of the node that had none is %v: want fenced, and started 0001-01-01T00:00:00Z", n.value)
	}
}

func ownerSlow(s *stage) {
	s.works()
	const other = "peer-3-3-c"
	owners := map[string]string{ // and what they answer
		"peer-1-1-a": "", "peer-2-2-b": `{"v":1,"error":"busy"}`, other: `{"v":2,"holds":false}`, "peer-4-4-d": `{"v":1,"holds":true,"ended":true}`,
	}
	claimed := map[string]uint64{}
	var asked atomic.Int32
	var denies atomic.Bool
	for owner, answer := range owners {
		s.peer(owner, nil)
		claimed[owner] = s.set("ledger", key("work:@"+owner), running("work:@"+owner, owner, 1))
		s.serve(owner, func(m *nats.Msg) {
			asked.Add(1)
			if denies.Load() {
				_ = m.Respond([]byte(`{"v":1,"holds":false}`))
			} else if answer != "" {
				_ = m.Respond([]byte(answer))
			}
		})
	}
	s.behind("nodes", "")
	for owner := range owners {
		s.offer("work", owner, 10)
	}
	began := time.Now()
	s.never("C-14", lease+silence, func() string {
		for owner, answer := range owners {
			id := "work:@" + owner
			why := s.notStarted(id, "its owner lives")()
			if s.slot(id).revision != claimed[owner] {
				why = fmt.Sprintf("the slot was taken from %s, which lives, and answers %q", owner, answer)
			}
			if why != "" && owner == other {
				s.breaks("V-2", "%s", why)
			} else if why != "" {
				return why
			}
		}
		return ""
	})
	if asked.Load() == 0 {
		return // it need not ask
	}
	denies.Store(true)
	beats := s.tap.frames(func(f frame) bool { return f.writes(nodes, "alive") && f.at.After(began) })
	if most := time.Since(began) / (lease / 10); len(beats) < int(most)/3 {
		s.breaks("L-1", "%d heartbeats in %v: want one every %v", len(beats), time.Since(began).Round(time.Second), lease/10)
	}
	for owner := range owners {
		if r := s.succeeds("C-2", "work:@"+owner); r.number("attempt") != 2 {
			s.breaks("C-2", "the record after the owner disowned its claim is %v: want attempt 2", r.value)
		}
	}
}

// ownerHolds has a slot so old that the client could take it over if its owner did not answer.
func ownerHolds(s *stage) {
	s.define("work", nil, value{"schedule": everySecond})
	s.launch("work", "CRONCE_UNDER_TEST_PRODUCE=0")
	const owner = "peer-1-1-a"
	s.peer(owner, nil)
	id := job.NewSlot("work", time.Now().UTC().Add(-25*time.Hour).Truncate(time.Second)).ID()
	claimed := s.set("ledger", key(id), running(id, owner, 1))
	var outlived atomic.Bool
	var asked atomic.Int32
	s.serve(owner, func(m *nats.Msg) {
		asked.Add(1)
		_ = m.Respond(jsonOf(value{"v": 1, "holds": true, "ended": outlived.Load()}))
	})
	s.publish("work", id, 10)
	s.never("K-2", lease+silence, func() string {
		if s.slot(id).revision != claimed {
			return "the slot was taken from a node that lives, and that says that it holds the slot"
		}
		return s.notStarted(id, "its owner lives and holds it")()
	})
	if asked.Load() == 0 {
		return // it need not ask
	}
	outlived.Store(true)
	s.await("C-2", id+", whose owner's handler outlived its context, to end", func() bool { return slices.Contains(final, s.slot(id).text("state")) })
}

// ownerMoves changes the record while the client finds out whether its owner is dead, or whether the
// owner holds the claim. By then the record is another owner's, or of a later claim.
func ownerMoves(s *stage) {
	s.define("work", nil, nil)
	const dead, owner = "peer-1-1-a", "peer-2-2-b"
	s.peer(owner, nil)
	s.peer(dead, nil)()
	id := "work:@one"
	var claimed atomic.Uint64
	claim := func(attempt int, at uint64) {
		if revision, err := s.put("ledger", key(id), running(id, owner, attempt), at); err == nil {
			claimed.Store(revision)
		}
	}
	first := s.set("ledger", key(id), running(id, dead, 1))
	var again atomic.Bool
	s.serve(owner, func(m *nats.Msg) {
		moves := again.CompareAndSwap(false, true)
		if moves {
			claim(3, claimed.Load())
		}
		_ = m.Respond(jsonOf(value{"v": 1, "holds": !moves}))
	})
	s.tap.rule(func(f frame) verdict {
		if f.writes(nodes+dead, "fenced") && claimed.Load() == 0 {
			claim(2, first)
		}
		return pass
	})
	s.launch("work")
	s.offer("work", "one", 10)
	s.await("C-2", dead+" to be declared dead", func() bool { return claimed.Load() > 0 })
	s.never("K-2", silence, func() string {
		if r := s.slot(id); r.text("node") != owner {
			return fmt.Sprintf("the slot was taken from %s, which lives: what the client had found out was of an earlier claim: %v", owner, r.value)
		}
		return s.notStarted(id, "its owner lives")()
	})
	s.set("ledger", key(id), ended(s.slot(id).value, "succeeded"))
	s.acked(id)
}

func otherLayout(s *stage) {
	s.define("work", nil, nil)
	stream, err := s.js.Stream(s.ctx, namespace+"_slots")
	s.must(err)
	cfg := stream.CachedInfo().Config
	cfg.Duplicates, cfg.Description = 3*time.Minute, "as the operator wants it"
	_, err = s.js.UpdateStream(s.ctx, cfg)
	s.must(err)
	const pending = 500_000
	_, err = s.js.CreateConsumer(s.ctx, namespace+"_slots", jetstream.ConsumerConfig{
		Durable: "default", FilterSubject: slots + "default.>", AckPolicy: jetstream.AckExplicitPolicy, AckWait: lease, MaxDeliver: -1, MaxAckPending: pending,
		PriorityPolicy: jetstream.PriorityPolicyPrioritized, PriorityGroups: []string{"workers"},
	})
	s.must(err)
	s.start("work")
	s.never("B-3", silence, func() string {
		stream, err := s.js.Stream(s.ctx, namespace+"_slots")
		s.must(err)
		if now := stream.CachedInfo().Config; now.Duplicates != cfg.Duplicates || !strings.HasPrefix(now.Description, "as the operator") {
			return fmt.Sprintf("the client changed the stream of slots: duplicate window %v, description %q", now.Duplicates, now.Description)
		}
		consumer, err := s.js.Consumer(s.ctx, namespace+"_slots", "default")
		s.must(err)
		if now := consumer.CachedInfo().Config.MaxAckPending; now != pending {
			s.breaks("B-4", "the client changed the consumer of its queue, which another worker had made: max ack pending %d, and it was %d", now, pending)
		}
		return ""
	})
}
