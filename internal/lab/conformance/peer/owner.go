package peer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/job"
)

// Scenarios about nodes: their trust, and their death.
var ownerScenarios = []Scenario{
	{"heartbeat-unanswered", []string{"L-1"}, "a heartbeat is stored, and its answer is lost", heartbeatUnanswered},
	{"unborn", []string{"L-3", "L-8"}, "the client's first heartbeats are lost, and then it cannot learn the broker's clock", unborn},
	{"owner-dead", []string{"L-5", "L-6", "C-2"}, "the owner of a slot falls silent", ownerDead},
	{"owner-silent", []string{"V-3", "L-5", "L-6", "K-2"}, "owners of slots have been silent since before the client started: one has no record, one has stopped, and one writes a heartbeat just before it is declared dead", ownerSilent},
	{"owner-slow", []string{"V-2", "K-2", "C-14", "L-1", "L-5"}, "the owners of slots live, and answer nothing, an error or in the words of another version, and the client's watch does not deliver their heartbeats; then they disown the slots", ownerSlow},
	{"owner-holds", []string{"K-2"}, "the owner of a slot that is older than the horizon lives, and says that it holds the slot; then, that its handler outlived its context", ownerHolds},
	{"owner-moves", []string{"K-2"}, "another node takes the slot over just before the client, from its dead owner, and claims it again while it is asked", ownerMoves},
	{"fenced", []string{"L-2", "C-11"}, "the client is declared dead while its handler runs", fenced},
	{"older-incarnation", []string{"L-3", "C-1"}, "the client is declared dead while its handler runs, which does not end with its context", olderIncarnation},
	{"lapsed", []string{"L-3", "L-4", "C-5", "W-5"}, "a heartbeat is answered late, and the next ones are lost for longer than a lease, as are the answers to a claim; then all arrive again", lapsed},
	{"frozen", []string{"L-3", "L-4", "C-11"}, "the client is frozen for longer than a lease while its handler runs", frozen},
	{"ask-lapsed", []string{"C-8", "C-11"}, "another worker asks for the owner of a slot, whose trust has lapsed and whose outcome was not answered", askLapsed},
	{"stop", []string{"L-7"}, "the client is asked to stop while a handler runs, and the outcome of another one is not answered", stopping},
	{"other-layout", []string{"B-3"}, "a stream has other settings than the client would give it", otherLayout},
}

// peer plays a node that lives until the returned function is called. It sends no answers.
func (s *stage) peer(name string, members value) (die func()) {
	v := value{
		"v": 1, "node": name, "state": "alive", "started": time.Now().UTC(), "lease": lease.String(), "producer": false, "worker": true, "running": 1,
		"clock_offset": "0s", "clock_error": "1ms", "tzdata": "2020a", "version": "peer",
	}
	for k, m := range members {
		v[k] = m
	}
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

func jsonOf(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(stop{err})
	}
	return data
}

func heartbeatUnanswered(s *stage) {
	s.define("work", nil, nil)
	node := s.launch("work")
	var mu sync.Mutex
	var lost frame
	differs := false
	s.answers(func(f frame) bool { return f.writes(nodes+node, "alive") }, func(n int) reply { return reply{taken: n == 0} })
	s.tap.rule(func(f frame) verdict {
		mu.Lock()
		defer mu.Unlock()
		const at = "Nats-Expected-Last-Subject-Sequence"
		switch {
		case !f.writes(nodes+node, "alive"):
		case lost.raw == nil:
			lost = f
		case f.header(at) == lost.header(at) && string(f.data) != string(lost.data):
			differs = true
			s.breaks("L-1", "a heartbeat that was not answered is followed by another one at its revision, and not by the same one: %s", f)
		}
		return pass
	})
	s.await("L-1", "another heartbeat, after one that was not answered", func() bool {
		mu.Lock()
		defer mu.Unlock()
		said := s.tap.frames(func(f frame) bool {
			return f.writes(nodes+node, "alive") && string(f.data) != string(lost.data) && f.at.After(lost.at)
		})
		return differs || lost.raw != nil && len(said) > 1
	})
}

// unborn has the client learn nothing that a node must know before it acts.
func unborn(s *stage) {
	s.define("work", nil, nil)
	s.define("tick", nil, value{"schedule": everySecond})
	heal := s.tap.unanswered(func(f frame) bool { return f.writes(nodes) }, true)
	untold := s.behind("nodes", "")
	read := func(f frame) bool {
		return f.isPublish() && strings.Contains(f.subject, ".GET.KV_"+namespace+"_nodes")
	}
	unread := s.tap.unanswered(read, true)
	s.start("work")
	id := s.offer("work", "one", 10)
	acts := func(why string) func() string {
		return func() string {
			for _, f := range s.tap.frames(func(f frame) bool {
				return f.writes(ledger) || f.isPublish() && strings.HasPrefix(f.subject, slots) || f.writes(state)
			}) {
				return "the client acts, and " + why + ": " + f.String()
			}
			return s.notStarted(id, why)()
		}
	}
	s.await("L-1", "a heartbeat", func() bool { return len(s.tap.frames(func(f frame) bool { return f.writes(nodes) })) > 0 })
	s.never("L-3", silence, acts("no heartbeat of its node was acknowledged"))
	heal()
	s.node("")
	s.never("L-8", silence/2, acts("it has no estimate of the broker's clock"))
	untold()
	unread()
	s.succeeds("C-2", id)
}

func ownerDead(s *stage) {
	s.define("work", nil, nil)
	s.launch("work")
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
	fence := s.get("nodes", owner).revision
	s.never("L-6", silence/4, func() string {
		if s.get("nodes", owner).revision != fence {
			return "the record of the dead node was written over"
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
	before := s.get("nodes", stopped).revision
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
	if s.get("nodes", stopped).revision != before {
		s.breaks("L-6", "the record of %s, which had stopped, was written over", stopped)
	}
	if n := s.get("nodes", "peer-1-1-a"); n.text("x_shade") != "blue" {
		s.breaks("V-3", "the record of the dead node lost its member x_shade: %v", n.value)
	}
	if n := s.get("nodes", absent); n.text("state") != "fenced" || n.text("started") != "0001-01-01T00:00:00Z" {
		s.breaks("L-5", "the record of the node that had none is %v: want fenced, and started 0001-01-01T00:00:00Z", n.value)
	}
}

func ownerSlow(s *stage) {
	s.define("work", nil, nil)
	s.launch("work")
	const other = "peer-3-3-c"
	owners := map[string]string{"peer-1-1-a": "", "peer-2-2-b": `{"v":1,"error":"busy"}`, other: `{"v":2,"holds":false}`} // and what they answer
	claimed := map[string]uint64{}
	var asked atomic.Int32
	var denies atomic.Bool
	for owner, answer := range owners {
		s.peer(owner, nil)
		claimed[owner] = s.set("ledger", key("work:@"+owner), running("work:@"+owner, owner, 1))
		answers, err := s.nc.Subscribe(namespace+".node."+owner+".cancel", func(m *nats.Msg) {
			asked.Add(1)
			if denies.Load() {
				_ = m.Respond([]byte(`{"v":1,"holds":false}`))
			} else if answer != "" {
				_ = m.Respond([]byte(answer))
			}
		})
		s.must(err)
		defer answers.Unsubscribe() //nolint:errcheck // the connection ends with the scenario
	}
	s.must(s.nc.Flush())
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

// ownerHolds has a slot so old that its owner's silence would do.
func ownerHolds(s *stage) {
	s.define("work", nil, value{"schedule": everySecond})
	s.launch("work", "CRONCE_UNDER_TEST_PRODUCE=0")
	const owner = "peer-1-1-a"
	s.peer(owner, nil)
	id := job.NewSlot("work", time.Now().UTC().Add(-25*time.Hour).Truncate(time.Second)).ID()
	claimed := s.set("ledger", key(id), running(id, owner, 1))
	var outlived atomic.Bool
	var asked atomic.Int32
	answers, err := s.nc.Subscribe(namespace+".node."+owner+".cancel", func(m *nats.Msg) {
		asked.Add(1)
		_ = m.Respond(jsonOf(value{"v": 1, "holds": true, "ended": outlived.Load()}))
	})
	s.must(err)
	defer answers.Unsubscribe() //nolint:errcheck // the connection ends with the scenario
	s.must(s.nc.Flush())
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

// ownerMoves has what the client finds out about an owner, or about a claim, come too late: the record
// is then another owner's, or of a later claim.
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
	answers, err := s.nc.Subscribe(namespace+".node."+owner+".cancel", func(m *nats.Msg) {
		moves := again.CompareAndSwap(false, true)
		if moves {
			claim(3, claimed.Load())
		}
		_ = m.Respond(jsonOf(value{"v": 1, "holds": !moves}))
	})
	s.must(err)
	defer answers.Unsubscribe() //nolint:errcheck // the connection ends with the scenario
	s.must(s.nc.Flush())
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
	s.await("C-9", "the message of "+id+" to be acked", func() bool { return s.inStream() == 0 })
}

// fence declares a node of the client dead.
func (s *stage) fence(node string) {
	for v := s.get("nodes", node); ; v = s.get("nodes", node) {
		v.value["state"], v.value["fenced_by"], v.value["fenced_at"] = "fenced", "peer-1-1-a", time.Now().UTC()
		if _, err := s.put("nodes", node, v.value, v.revision); err == nil {
			return
		}
	}
}

func fenced(s *stage) {
	s.define("work", nil, nil)
	node := s.launch("work")
	id := s.offer("work", "one", 2000)
	s.starts("C-5", id)
	was, delivered := s.slot(id), time.Now()
	s.fence(node)
	next := s.node(node)
	s.await("L-2", "the handler of the fenced node to be cancelled", func() bool { return len(s.did("cancel", id)) > 0 })
	late := s.tap.frames(func(f frame) bool { return f.writes(ledger, final...) && f.body()["node"] == node })
	words := s.answersTo(id, delivered, delivered)
	if len(late) > 0 || slices.ContainsFunc(words, func(w string) bool { return w != "progress" }) {
		s.breaks("C-11", "the fenced node %s completed the slot, or answered its message: %v", node, words)
	}
	r := s.succeeds("C-2", id)
	if r.text("node") != next || r.number("attempt") != was.number("attempt")+1 {
		s.breaks("L-2", "the slot ended with node %q and attempt %d: want the new node %q and attempt 2", r.text("node"), r.number("attempt"), next)
	}
	if s.get("nodes", node).text("state") != "fenced" {
		s.breaks("L-6", "the record of the fenced node was written over")
	}
}

// olderIncarnation has a second message of the slot come to the new incarnation, while the older one
// still runs it.
func olderIncarnation(s *stage) {
	s.define("work", nil, nil)
	node := s.launch("work")
	id := s.offerDeaf("work", "one", 6000)
	s.starts("C-5", id)
	s.fence(node)
	s.await("L-2", "the handler of the fenced node to be cancelled", func() bool { return len(s.did("cancel", id)) > 0 })
	s.node(node)
	if len(s.did("end", id)) > 0 {
		panic(leave{"its handlers end with their contexts"})
	}
	s.offer("work", "one", 10, "Nats-Msg-Id", id+"/r2")
	s.await("C-1", "the handler of the older incarnation to return", func() bool {
		if slices.ContainsFunc(s.did("end", id), func(l line) bool { return l.Attempt == 1 }) {
			return true
		}
		if len(s.did("start", id)) > 1 {
			s.fails("C-1", "the new incarnation starts %s while the older one of the same process still runs it", id)
		}
		for _, word := range s.answersOf(id) {
			if word == "ack" || word == "term" {
				s.breaks("C-1", "a message of %s was answered with %s while an older incarnation runs it: want it given back", id, word)
			}
		}
		return false
	})
	if r := s.succeeds("C-2", id); r.number("attempt") != 2 || r.text("node") == node {
		s.breaks("L-3", "%s has succeeded as attempt %d of %s: want attempt 2, of the new incarnation", id, r.number("attempt"), r.text("node"))
	}
}

func lapsed(s *stage) {
	s.define("work", nil, nil)
	node := s.launch("work")
	id := s.offer("work", "one", 60_000)
	s.starts("C-5", id)
	held := []string{"work:@held-1", "work:@held-2"} // a client that repeats their claims each second does so at any time
	healClaim := s.tap.unanswered(func(f frame) bool { return isClaim(f) && slices.Contains(held, fmt.Sprint(f.body()["id"])) }, false)
	beats := make(chan time.Time, 1)
	heal := s.answers(func(f frame) bool { return f.writes(nodes) }, func(n int) reply {
		if n == 0 {
			beats <- time.Now()
			return reply{late: lease / 5}
		}
		return reply{lost: true, taken: true}
	})
	var silent time.Time
	select {
	case silent = <-beats: // trust counts from before it was sent, and not from its answer
	case <-time.After(patience):
		s.fails("L-1", "waited %v for a heartbeat", patience)
	}
	s.offer("work", "held-1", 10)
	s.sleep(lease / 8)
	s.offer("work", "held-2", 10)
	const untrusted = lease*3/4 + lease/10
	s.sleep(max(0, untrusted-time.Since(silent)))
	s.offer("work", "quarter", 10)
	s.await("L-3", "the handler to be cancelled, whose node has no trust left", func() bool { return len(s.did("cancel", id)) > 0 })
	if after := time.Since(silent); after > lease+lease/10 {
		s.breaks("L-3", "the handler's context ended %v after the last heartbeat: want within a lease, %v", after.Round(time.Millisecond), lease)
	}
	s.sleep(max(0, lease+silence/4-time.Since(silent)))
	for _, f := range s.tap.frames(func(f frame) bool { return isClaim(f) && f.body()["node"] == node }) {
		if after := f.at.Sub(silent); after > untrusted {
			s.breaks("L-3", "a claim is sent %v after the last heartbeat that was acknowledged: want no later than three quarters of a lease, %v", after.Round(time.Millisecond), lease*3/4)
		}
	}
	later := s.offer("work", "two", 10)
	s.sleep(silence / 4)
	for _, id := range held {
		for _, start := range s.did("start", id) {
			s.breaks("W-5", "the handler of %s started (attempt %d), although no copy of its claim was answered while its node had trust", id, start.Attempt)
		}
	}
	end := time.Now()
	heal()
	healClaim()
	next := ""
	goesOn := func() {
		for _, f := range s.tap.frames(func(f frame) bool { return f.at.After(end) && f.isPublish() && f.body()["node"] == node }) {
			if f.writes(nodes, "alive") {
				s.fails("L-4", "node %s, whose trust has lapsed, writes another heartbeat: %s", node, f)
			}
			if f.writes(ledger) {
				s.fails("L-3", "node %s, whose trust has lapsed, writes a record: %s", node, f)
			}
		}
	}
	s.await("L-4", "a new incarnation, and what the old one still does", func() bool {
		goesOn()
		for _, n := range s.nodes() {
			if n.text("state") == "alive" && n.text("node") != node {
				next = n.text("node")
			}
		}
		return next != ""
	})
	if r := s.succeeds("C-2", later); r.text("node") == node {
		s.breaks("C-5", "the slot ran on node %s, whose trust had lapsed", node)
	}
	goesOn()
}

// frozen stops the client's process. When it wakes, its timers are late, and it has yet to find out
// that its trust has lapsed.
func frozen(s *stage) {
	s.define("work", nil, nil)
	node := s.launch("work")
	id := s.offer("work", "one", 60_000)
	s.starts("C-5", id)
	if err := s.client.Freeze(); errors.Is(err, errors.ErrUnsupported) {
		panic(leave{"this system cannot freeze it"})
	} else {
		s.must(err)
	}
	s.sleep(lease + silence/4)
	woken := time.Now()
	s.must(s.client.Thaw())
	s.await("L-3", "the handler to be cancelled, whose node has no trust left", func() bool { return len(s.did("cancel", id)) > 0 })
	s.node(node)
	s.never("L-3", silence/2, func() string {
		for _, f := range s.tap.frames(func(f frame) bool { return f.at.After(woken) && f.isPublish() && f.body()["node"] == node }) {
			if f.writes(nodes, "alive") {
				s.breaks("L-4", "node %s, whose trust lapsed while it was frozen, writes another heartbeat: %s", node, f)
			}
			if f.writes(ledger) {
				return fmt.Sprintf("node %s, whose trust lapsed while it was frozen, writes a record: %s", node, f)
			}
		}
		if words := s.answersTo(id, woken, woken); len(words) > 0 {
			s.breaks("C-11", "node %s, whose trust lapsed while it was frozen, answers the message of %s: %v", node, id, words)
		}
		return ""
	})
}

func askLapsed(s *stage) {
	s.define("work", nil, nil)
	node := s.launch("work")
	s.tap.unanswered(func(f frame) bool { return f.writes(ledger, final...) }, true)
	id := s.offer("work", "one", 10)
	s.await("W-3", "the write of the outcome", func() bool { return len(s.tap.frames(func(f frame) bool { return f.writes(ledger, final...) })) > 0 })
	claimed := s.slot(id).revision
	// A second slot, whose record cannot be read, keeps the client from ending the node at once.
	s.tap.unanswered(func(f frame) bool { return f.subject == getLedger }, true)
	heal := s.tap.unanswered(func(f frame) bool { return f.writes(nodes) }, true)
	silent := time.Now()
	denies := func() string {
		if words := s.answersTo("work:@two", time.Now(), silent.Add(lease*8/10)); len(words) > 0 {
			s.breaks("C-11", "more than %v after the last heartbeat that the broker got, the node answers the message of work:@two: %v", lease*8/10, words)
		}
		answers, err := s.nc.Request(namespace+".node."+node+".cancel", jsonOf(value{"v": 1, "id": id, "claim": claimed}), silence/10)
		if err == nil && (frame{data: answers.Data}).body()["holds"] == false {
			return fmt.Sprintf("%v after the last heartbeat that the broker got, the node denies the claim by which a handler ran, and whose outcome may still be stored: %s",
				time.Since(silent).Round(time.Millisecond), answers.Data)
		}
		return ""
	}
	s.never("C-8", lease*6/10, denies)
	// It comes so late that it would be marked first when the client has no trust left.
	s.offer("work", "two", 10)
	s.never("C-8", lease*4/10+silence/2, denies)
	heal()
}

func stopping(s *stage) {
	s.define("work", nil, nil)
	node := s.launch("work")
	const lost = "work:@lost"
	s.tap.unanswered(func(f frame) bool { return f.writes(ledger, final...) && f.body()["id"] == lost }, true)
	id := s.offer("work", "one", 1000)
	s.offer("work", "lost", 10)
	s.starts("C-5", id)
	s.await("C-2", "the handler of "+lost+" to return", func() bool { return len(s.did("end", lost)) > 0 })
	early := s.tap.rule(func(f frame) verdict {
		for _, id := range []string{id, lost} {
			if !f.writes(nodes, "stopped") {
				break
			}
			if v, err := s.lookup("ledger", key(id)); err == nil && v.text("state") == "running" {
				s.breaks("L-7", "the node writes stopped while %s is %s", id, v.text("state"))
			}
		}
		return pass
	})
	defer early()
	s.must(s.client.Terminate())
	limit := time.Now().Add(patience)
	for how, gone := s.client.Ended(); ; how, gone = s.client.Ended() {
		if gone && how != "exit status 0" && how != "signal: terminated" { // the shell may get it too
			s.fails("L-7", "the client ended with %s after a TERM", how)
		}
		if gone {
			break
		}
		if time.Now().After(limit) {
			s.fails("L-7", "the client did not end within %v of a TERM", patience)
		}
		s.sleep(20 * time.Millisecond)
	}
	if state := s.slot(id).text("state"); state == "running" && s.get("nodes", node).text("state") == "stopped" {
		s.breaks("L-7", "the client has stopped, and %s is still running", id)
	}
}

func otherLayout(s *stage) {
	s.define("work", nil, nil)
	stream, err := s.js.Stream(s.ctx, namespace+"_slots")
	s.must(err)
	cfg := stream.CachedInfo().Config
	cfg.Duplicates, cfg.Description = 3*time.Minute, "as the operator wants it"
	_, err = s.js.UpdateStream(s.ctx, cfg)
	s.must(err)
	s.start("work")
	s.never("B-3", silence, func() string {
		stream, err := s.js.Stream(s.ctx, namespace+"_slots")
		s.must(err)
		if now := stream.CachedInfo().Config; now.Duplicates != cfg.Duplicates || !strings.HasPrefix(now.Description, "as the operator") {
			return fmt.Sprintf("the client changed the stream of slots: duplicate window %v, description %q", now.Duplicates, now.Description)
		}
		return ""
	})
}
