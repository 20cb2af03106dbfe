package peer

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// Scenarios about the trust of the client's own node; ownerScenarios lists them.

func heartbeatUnanswered(s *stage) {
	node := s.works()
	var mu sync.Mutex
	var lost frame
	differs := false
	s.answersFirst(func(f frame) bool { return f.writes(nodes+node, "alive") }, reply{taken: true})
	s.tap.rule(func(f frame) verdict {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case !f.writes(nodes+node, "alive"):
		case lost.raw == nil:
			lost = f
		case f.expected() == lost.expected() && string(f.data) != string(lost.data):
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

// unborn keeps from the client what a node must know before it acts: at first whether its heartbeats are
// stored, and then the broker's clock.
func unborn(s *stage) {
	s.define("work", nil, nil)
	s.define("tick", nil, value{"schedule": everySecond})
	heal := s.unanswered(func(f frame) bool { return f.writes(nodes) }, true)
	untold := s.behind("nodes", "")
	read := func(f frame) bool {
		return f.isPublish() && strings.Contains(f.subject, ".GET.KV_"+namespace+"_nodes")
	}
	unread := s.unanswered(read, true)
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
	s.never("L-8", silence+silence/2, acts("it has no estimate of the broker's clock"))
	untold()
	unread()
	s.succeeds("C-2", id)
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
	node := s.works()
	id := s.offer("work", "one", 2000)
	s.starts("C-5", id)
	was, delivered := s.slot(id), time.Now()
	s.fence(node)
	next := s.node(node)
	s.await("L-2", "the handler of the fenced node to be cancelled", func() bool { return len(s.did("cancel", id)) > 0 })
	late := s.tap.frames(func(f frame) bool { return isOutcome(f) && f.body()["node"] == node })
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
	node := s.works()
	returns, err := net.Listen("tcp", "127.0.0.1:0") // the handler returns when it is closed
	s.must(err)
	defer returns.Close()
	id := s.send("work", "work:@one", value{"ms": 15_000, "deaf": true, "until": returns.Addr().String()})
	s.starts("C-5", id)
	s.fence(node)
	s.await("L-2", "the handler of the fenced node to be cancelled", func() bool { return len(s.did("cancel", id)) > 0 })
	s.node(node)
	if len(s.did("end", id)) > 0 {
		panic(leave{"its handlers end with their contexts"})
	}
	s.offer("work", "one", 10, "Nats-Msg-Id", id+"/r2")
	until := time.Now().Add(silence)
	s.await("C-1", "the handler of the older incarnation to return", func() bool {
		if time.Now().After(until) {
			returns.Close()
		}
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
	node := s.works()
	id := s.offer("work", "one", 60_000)
	s.starts("C-5", id)
	// The two claims come half a second apart. So a client that repeats a claim each second sends a copy
	// of one of them soon after its trust has ended.
	held := []string{"work:@held-1", "work:@held-2"}
	healClaim := s.unanswered(func(f frame) bool { return isClaim(f) && slices.Contains(held, fmt.Sprint(f.body()["id"])) }, false)
	beats := make(chan time.Time, 1)
	heal := s.answers(func(f frame) bool { return f.writes(nodes) }, func(n int) reply {
		switch n {
		case 0:
			beats <- time.Now()
			return reply{taken: true}
		case 1:
			return reply{}
		}
		return reply{lost: true, taken: true}
	})
	var silent time.Time
	select {
	case silent = <-beats: // trust counts from before it was first sent, and not from its second copy or its answer
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
	node := s.works()
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
	node := s.works()
	s.unanswered(isOutcome, true)
	id := s.offer("work", "one", 10)
	s.await("W-3", "the write of the outcome", func() bool { return len(s.tap.frames(isOutcome)) > 0 })
	claimed := s.slot(id).revision
	// The record of a second slot cannot be read. That keeps the client from ending the node at once.
	s.unanswered(func(f frame) bool { return f.subject == getLedger }, true)
	heal := s.unanswered(func(f frame) bool { return f.writes(nodes) }, true)
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
	// It comes so late that its message is due to be marked for the first time when the client has no
	// trust left. It is offered anew, because a client may claim a first delivery without a read.
	s.offer("work", "two", 10, "Nats-Msg-Id", "work:@two/r2")
	s.never("C-8", lease*4/10+silence/2, denies)
	heal()
}

// stopping has the client stop twice: when all of its slots have ended, and while one runs and the
// outcome of another one is not stored.
func stopping(s *stage) {
	idle := s.works()
	s.startedBy("C-2", s.offer("work", "zero", 10), 0)
	s.terminates("L-9")
	if n := s.get("nodes", idle); n.text("state") != "stopped" {
		s.breaks("L-9", "the client has ended and owed nothing, and its node is %s: want stopped", n.text("state"))
	}

	node := s.launch("work")
	const lost = "work:@lost"
	s.unanswered(func(f frame) bool { return isOutcome(f) && f.body()["id"] == lost }, true)
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
	s.terminates("L-7")
	if state := s.slot(id).text("state"); state == "running" && s.get("nodes", node).text("state") == "stopped" {
		s.breaks("L-7", "the client has stopped, and %s is still running", id)
	}
}

// terminates asks the client to end, and waits until it has.
func (s *stage) terminates(must string) {
	s.must(s.client.Terminate())
	limit := time.Now().Add(patience)
	for how, gone := s.client.Ended(); ; how, gone = s.client.Ended() {
		if gone && how != "exit status 0" && how != "signal: terminated" { // the shell may get it too
			s.fails(must, "the client ended with %s after a TERM", how)
		}
		if gone {
			break
		}
		if time.Now().After(limit) {
			s.fails(must, "the client did not end within %v of a TERM", patience)
		}
		s.sleep(20 * time.Millisecond)
	}
}
