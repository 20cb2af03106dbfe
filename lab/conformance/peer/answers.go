package peer

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Scenarios about answers of the broker: errors, refusals, and answers that come late or twice.
var answerScenarios = []Scenario{
	{"claim-busy", []string{"W-3"}, "a claim is stored, and errors that do not say so come back", claimBusy},
	{"claim-refused", []string{"C-5", "C-9", "C-10", "W-5"}, "the server refuses each copy of a claim for a while", claimRefused},
	{"claim-refused-later", []string{"W-3", "W-4", "W-5", "C-2"}, "the first copy of a claim is stored and not answered, and the second one is refused; another slot has a claim of the client's node that the client does not know", claimRefusedLater},
	{"claim-conflicts", []string{"W-4"}, "conflicts that no other value explains", claimConflicts},
	{"claim-purged", []string{"W-4", "W-1"}, "the record is deleted just before it is claimed again; of another slot, nothing is left", claimPurged},
	{"record-purged", []string{"C-6", "C-10", "C-11"}, "the record of a run is deleted while its handler runs", recordPurged},
	{"message-purged", []string{"C-9", "C-10"}, "the slot's message is purged while its handler runs", messagePurged},
	{"completion-refused", []string{"C-15", "C-10"}, "the server refuses each copy of an outcome for a while", completionRefused},
	{"completion-refused-later", []string{"W-3"}, "the first copy of an outcome is stored and not answered, and the second one is refused", completionRefusedLater},
	{"completion-conflicts", []string{"W-4"}, "an outcome meets a write in progress, a read that finds nothing, and one that is not answered", completionConflicts},
	{"slow-answers", []string{"L-1", "L-3"}, "each answer to a write comes an eighth of a lease late", slowAnswers},
	{"late-and-twice", []string{"W-2", "W-3", "C-9"}, "each answer comes after the next copy was sent, and then twice", lateAndTwice},
}

// reply is what becomes of a publication of the client. The zero value: it passes, and the
// server answers.
type reply struct {
	text  string // an answer that the kit sends; empty: none
	lost  bool   // the server does not get the publication
	taken bool   // the server's own answer is dropped

	late time.Duration // how late the server's own answer comes
}

// refusal answers with an error of JetStream. If stored is true, the server stores the publication all
// the same.
func refusal(code int, text string, stored bool) reply {
	return reply{text: fmt.Sprintf(`{"error":{"code":503,"err_code":%d,"description":%q},"stream":"KV_%s_ledger","seq":0}`, code, text, namespace), lost: !stored, taken: true}
}

// answers has how decide what becomes of each publication of the client that match selects. n counts
// these publications from 0.
func (s *stage) answers(match func(frame) bool, how func(n int) reply) (stop func()) {
	var mu sync.Mutex
	n, said, late := 0, map[string]string{}, map[string]time.Duration{}
	return s.tap.rule(func(f frame) verdict {
		mu.Lock()
		defer mu.Unlock()
		if f.isPublish() && match(f) {
			r := how(n)
			n++
			delete(said, f.reply) // all copies of a write may have one reply subject
			if r.late > 0 {
				late[f.reply] = r.late
			}
			if r.taken {
				said[f.reply] = r.text
			}
			if r.text != "" {
				_ = s.nc.Publish(f.reply, []byte(r.text))
			}
			if r.lost {
				return drop
			}
			return pass
		}
		if text, ours := said[f.subject]; !f.toServer && ours && string(f.data) != text {
			return drop
		}
		if d := late[f.subject]; !f.toServer && d > 0 {
			delete(late, f.subject)
			data := slices.Clone(f.data)
			time.AfterFunc(d, func() { _ = s.nc.Publish(f.subject, data) })
			return drop
		}
		return pass
	})
}

// answersFirst decides what becomes of the first publications of the client that match selects, one after the
// other. All later ones pass. begun is true once the first has come.
func (s *stage) answersFirst(match func(frame) bool, replies ...reply) (begun *atomic.Bool) {
	begun = &atomic.Bool{}
	s.answers(match, func(n int) reply {
		begun.Store(true)
		if n < len(replies) {
			return replies[n]
		}
		return reply{}
	})
	return begun
}

// unanswered drops the answers to the publications that match selects. If lose is true, it drops the
// publications too.
func (s *stage) unanswered(match func(frame) bool, lose bool) (stop func()) {
	return s.answers(match, func(int) reply { return reply{lost: lose, taken: true} })
}

// unstored loses the publications that match selects. Every second copy is answered with an error,
// beginning with the first: only an acknowledgement ends a publication.
func (s *stage) unstored(match func(frame) bool) (stop func()) {
	return s.answers(match, func(n int) reply {
		if n%2 == 1 {
			return reply{lost: true, taken: true}
		}
		return refusal(10158, "message id is in flight", false)
	})
}

// notFound is the answer to a read of a key that has never been written.
var notFound = reply{text: `{"error":{"code":404,"err_code":10037,"description":"no message found"}}`, lost: true, taken: true}

func isClaim(f frame) bool   { return f.writes(ledger, "running") }
func isOutcome(f frame) bool { return f.writes(ledger, final...) }

// isCompletion reports whether the client writes how an attempt ended.
func isCompletion(f frame) bool { return isOutcome(f) || f.writes(ledger, "retrying") }

// sameWrites checks that all writes so far that match selects are copies of the first one. why says what
// became of the write number n, counted from 0.
func (s *stage) sameWrites(must, what string, match func(frame) bool, why func(n int) string) {
	copies := s.tap.frames(match)
	for i, f := range copies {
		if string(f.data) != string(copies[0].data) || f.expected() != copies[0].expected() {
			s.fails(must, "%s that %s is followed by another write, and not by the same one: %s", what, why(i-1), f)
		}
	}
}

// startedBy waits until the slot has succeeded and its message is acked. It checks that there was one
// attempt, by the claim at this revision; 0: by any claim.
func (s *stage) startedBy(must, id string, revision uint64) {
	s.succeeds(must, id)
	if starts := s.did("start", id); len(starts) != 1 || starts[0].Attempt != 1 || revision > 0 && starts[0].Fence != revision {
		s.breaks(must, "the starts of %s are %v: want one, attempt 1 with the fence %d, the revision of the claim that was stored", id, starts, revision)
	}
	s.acked(id)
}

// claimBusy has a slot for each error that does not say whether the write was stored.
func claimBusy(s *stage) {
	s.works()
	for _, code := range []int{10004, 10008, 10009, 10075, 10077, 10118, 10158, 10163, 10194} {
		id := fmt.Sprintf("work:@%d", code)
		claims := func(f frame) bool { return isClaim(f) && f.body()["id"] == id }
		s.answersFirst(claims, refusal(code, "try again", true))
		s.publish("work", id, 10)
		s.await("W-3", fmt.Sprintf("a second copy of a claim that was answered with the error %d, which does not say what became of it", code), func() bool {
			s.sameWrites("W-3", "a claim", claims, func(int) string { return fmt.Sprintf("was answered with the error %d", code) })
			if len(s.did("start", id)) > 0 && len(s.tap.frames(claims)) < 2 {
				s.fails("W-5", "the handler of %s started, although its claim was answered with the error %d", id, code)
			}
			return len(s.tap.frames(claims)) > 1
		})
		s.startedBy("W-3", id, 0)
	}
}

func claimRefused(s *stage) {
	s.works()
	heal := s.answers(isClaim, func(int) reply { return refusal(10077, "maximum bytes exceeded", false) })
	id := s.offer("work", "one", 10)
	s.await("C-2", "a claim of "+id, func() bool { return len(s.tap.frames(isClaim)) > 0 })
	s.never("C-5", silence/2, func() string {
		if words := s.answersOf(id); slices.Contains(words, "ack") || slices.Contains(words, "term") {
			s.breaks("C-10", "the message of %s, whose claim was refused, is answered with %v", id, words)
		}
		return s.notStarted(id, "its claim was refused")()
	})
	heal()
	s.startedBy("C-2", id, 0)
	if s.forgotten(id) {
		s.breaks("C-9", "the message of %s, whose claim was refused, came again because it was not answered: want it given back", id)
	}
}

// refusesLater stores the first write that match selects and does not answer it, and refuses the second.
func (s *stage) refusesLater(match func(frame) bool) {
	s.answersFirst(match, reply{taken: true}, refusal(10054, "message size exceeds maximum allowed", false))
}

func claimRefusedLater(s *stage) {
	node := s.works()
	s.refusesLater(isClaim)
	id := s.offer("work", "one", 10)
	// The client may repeat the claim, or give up: then it finds its own claim, and claims anew by a
	// write at that revision, with the attempt not counted.
	s.await("W-3", "a third write of a claim whose first copy was not answered, and whose second one was refused", func() bool {
		return len(s.tap.frames(isClaim)) > 2
	})
	s.startedBy("W-3", id, 0)

	// Another slot has a claim of the client's node already, by a write that the client does not know.
	const adopted = "work:@adopted"
	var unknown atomic.Uint64
	s.tap.rule(func(f frame) verdict {
		if isClaim(f) && f.body()["id"] == adopted && unknown.Load() == 0 {
			unknown.Store(s.set("ledger", key(adopted), running(adopted, node, 2)))
		}
		return pass
	})
	s.offer("work", "adopted", 10)
	r := s.succeeds("C-2", adopted)
	starts := s.did("start", adopted)
	if len(starts) != 1 || starts[0].Fence == unknown.Load() {
		s.breaks("W-4", "the starts of %s are %v: want one, and not by the claim at revision %d, whose nonce is not the client's", adopted, starts, unknown.Load())
	}
	if attempts, _ := r.value["attempts"].([]any); r.number("attempt") != 2 || len(attempts) != 1 {
		s.breaks("C-2", "%s was claimed by the client's own node for attempt 2 and not started, and its record is %v: want it claimed again for the same attempt", adopted, r.value)
	}
}

// conflicts answers the first of these writes with 10164, and the second with 10071.
func (s *stage) conflicts(writes func(frame) bool) (begun *atomic.Bool) {
	return s.answersFirst(writes, refusal(10164, "last sequence by subject: in process", false), refusal(10071, "wrong last sequence: 7", false))
}

// claimConflicts has two slots, one without and one with a record. The first read of that record after
// the conflicts finds nothing. Later reads find the record, at the revision that the claim names.
func claimConflicts(s *stage) {
	s.define("work", nil, nil)
	const tried = "work:@two"
	v := retrying(running(tried, "peer-9-9-z", 1), time.Now())
	revisions := map[string]uint64{"work:@one": 0, tried: s.set("ledger", key(tried), v)}
	s.launch("work")
	for id, revision := range revisions {
		claims := func(f frame) bool { // a client that has not read the record loses a claim at revision 0 first
			return isClaim(f) && f.body()["id"] == id && f.expected() == fmt.Sprint(revision)
		}
		conflict := s.conflicts(claims)
		reads := func(f frame) bool {
			return id == tried && conflict.Load() && f.subject == getLedger && strings.Contains(string(f.data), key(id))
		}
		s.answersFirst(reads, notFound)
		s.publish("work", id, 10)
		s.await("W-4", "a third copy of a claim: nothing explains the conflict", func() bool {
			s.sameWrites("W-4", "a claim", claims, func(n int) string {
				return fmt.Sprintf("was answered with the error %d, while the key is as it was,", []int{10164, 10071, 0}[min(n, 2)])
			})
			return len(s.tap.frames(claims)) > 2
		})
		s.succeeds("W-4", id)
		if starts := s.did("start", id); len(starts) != 1 {
			s.breaks("W-4", "the starts of %s are %v: want one", id, starts)
		}
	}
}

func claimPurged(s *stage) {
	s.define("work", nil, nil)
	id := "work:@one"
	v := retrying(running(id, "peer-9-9-z", 1), time.Now())
	s.set("ledger", key(id), v)
	s.launch("work")
	var once atomic.Bool
	s.tap.rule(func(f frame) verdict {
		if isClaim(f) && once.CompareAndSwap(false, true) {
			s.remove("ledger", key(id))
		}
		return pass
	})
	// It is offered anew, because a client may claim a first delivery without a read.
	s.offer("work", "one", 10, "Nats-Msg-Id", id+"/r2")
	s.await("W-4", "a claim over the marker", func() bool {
		claims := s.tap.frames(isClaim)
		for _, f := range claims {
			if n, _ := f.body()["attempt"].(float64); n != 1 && f.expected() != claims[0].expected() {
				s.fails("W-4", "the record of %s was deleted, and a claim over the marker has attempt %v: want 1, since there is no record", id, n)
			}
		}
		return len(s.did("start", id)) > 0
	})
	s.startedBy("W-4", id, 0)
	s.claimVanished(v)
}

// claimVanished has a claim at the revision of a record refused, while the key has neither a value nor
// a marker. So the claim is lost: it is not sent again, and the slot is decided again.
func (s *stage) claimVanished(v value) {
	id := "work:@two"
	v["id"], v["retry_at"] = id, time.Now().UTC()
	s.set("ledger", key(id), v)
	var claim atomic.Value
	copies := func(f frame) bool {
		if !isClaim(f) || f.body()["id"] != id {
			return false
		}
		claim.CompareAndSwap(nil, string(f.data))
		return claim.Load() == string(f.data)
	}
	s.answers(copies, func(int) reply { return refusal(10071, "wrong last sequence: 0", false) })
	reads := func(f frame) bool {
		return claim.Load() != nil && f.subject == getLedger && strings.Contains(string(f.data), key(id))
	}
	s.answersFirst(reads, notFound)
	s.offer("work", "two", 10, "Nats-Msg-Id", id+"/r2")
	s.succeeds("W-4", id)
}

func recordPurged(s *stage) {
	s.works()
	id := s.offer("work", "one", 800)
	s.starts("C-5", id)
	s.remove("ledger", key(id))
	s.await("C-6", "the handler to return", func() bool { return len(s.did("end", id)) > 0 })
	// The oracle looks for an ack before there is an outcome. The worker may write it again, or
	// leave the slot to the next delivery.
	s.succeeds("C-11", id)
	s.acked(id)
}

func messagePurged(s *stage) {
	s.works()
	id := s.offer("work", "one", 800)
	s.starts("C-5", id)
	stream, err := s.js.Stream(s.ctx, namespace+"_slots")
	s.must(err)
	s.must(stream.Purge(s.ctx))
	s.succeeds("C-10", id)
	s.startedBy("C-9", s.offer("work", "two", 10), 0) // and the client goes on
}

func completionRefused(s *stage) {
	s.works()
	heal := s.answers(isCompletion, func(int) reply { return refusal(10054, "message size exceeds maximum allowed", false) })
	id := s.offer("work", "one", 10)
	s.await("C-2", "the write of the outcome", func() bool { return len(s.tap.frames(isCompletion)) > 0 })
	s.never("C-15", silence, func() string {
		if starts := s.did("start", id); len(starts) > 1 {
			return fmt.Sprintf("the handler of %s started again while its outcome was refused, its claim is the worker's, and attempt 1 has run: %v", id, starts)
		}
		return ""
	})
	heal()
	s.startedBy("C-2", id, 0)
}

func completionRefusedLater(s *stage) {
	s.works()
	s.refusesLater(isOutcome)
	id := s.offer("work", "one", 10)
	s.await("W-3", "a second copy of an outcome whose first one was not answered", func() bool { return len(s.tap.frames(isOutcome)) > 1 })
	s.acked(id)
	s.sameWrites("W-3", "an outcome", isOutcome, func(n int) string {
		return []string{"was not answered", "was refused, after one that was not answered,"}[min(n, 1)]
	})
}

// completionConflicts has an outcome answered with 10164, and the read after it with nothing. Only
// 10071 would say that the record is gone. The read after the next conflict is answered with an error.
func completionConflicts(s *stage) {
	s.works()
	conflict := s.conflicts(isCompletion)
	reads := func(f frame) bool { return conflict.Load() && f.subject == getLedger }
	s.answersFirst(reads, notFound, refusal(10008, "JetStream system temporarily unavailable", false))
	id := s.offer("work", "one", 10)
	s.await("W-4", "a third copy of an outcome: nothing explains the conflicts", func() bool {
		s.sameWrites("W-4", "an outcome", isCompletion, func(n int) string {
			return []string{"was answered with the error 10164, while its key has no value,", "was answered with the error 10071, while its key is at the revision that it names,"}[min(n, 1)]
		})
		return len(s.tap.frames(isCompletion)) > 2
	})
	s.startedBy("W-4", id, 0)
}

// slowAnswers has each answer of the server to what the client publishes come late, as on a slow
// disk. That is no reason to lose the lease.
func slowAnswers(s *stage) {
	s.define("work", nil, nil)
	s.answers(func(f frame) bool { return strings.HasPrefix(f.subject, "$KV.") }, func(int) reply { return reply{late: lease / 8} })
	node := s.launch("work")
	id := s.offer("work", "one", 10)
	s.succeeds("L-1", id)
	s.never("L-3", 2*lease, func() string {
		if n := s.get("nodes", node); n.text("state") != "alive" {
			return fmt.Sprintf("the client's node %s is %s, although all of its heartbeats were answered in time", node, n.text("state"))
		}
		for _, n := range s.nodes() {
			if name := n.text("node"); name != node && !strings.HasPrefix(name, "peer") {
				return fmt.Sprintf("the client began anew as %s, although all heartbeats of %s were answered within an eighth of a lease", name, node)
			}
		}
		return ""
	})
}

// lateAndTwice holds the answers to the first copy of a write until the client has sent the next
// one, and sends each answer twice.
func lateAndTwice(s *stage) {
	s.works()
	var mu sync.Mutex
	bodies := map[string]int{}    // how many copies of a write there were
	asked := map[string]string{}  // reply subject to body
	held := map[string][]func(){} // body to answers that wait for the next copy
	twice := map[string]bool{}    // reply subjects whose answer was repeated
	again := func(subject string, data []byte, times int) func() {
		return func() {
			for range times {
				_ = s.nc.Publish(subject, data)
			}
		}
	}
	s.tap.rule(func(f frame) verdict {
		mu.Lock()
		defer mu.Unlock()
		switch body, ours := asked[f.subject]; {
		case f.isPublish() && strings.HasPrefix(f.subject, ledger):
			body := string(f.data)
			bodies[body]++
			asked[f.reply] = body
			for _, send := range held[body] {
				send()
			}
			held[body] = nil
		case !f.toServer && ours && !twice[f.subject]:
			twice[f.subject] = true
			if bodies[body] > 1 { // its next copies are answered at once
				again(f.subject, f.data, 1)()
				return pass
			}
			held[body] = append(held[body], again(f.subject, slices.Clone(f.data), 2))
			return drop
		}
		return pass
	})
	for _, token := range []string{"one", "two"} {
		s.startedBy("W-2", s.offer("work", token, 10), 0)
	}
	mu.Lock()
	defer mu.Unlock()
	for body, n := range bodies {
		if n < 2 {
			s.breaks("W-2", "a write whose answer was late was not repeated: %s", body)
		}
	}
}
