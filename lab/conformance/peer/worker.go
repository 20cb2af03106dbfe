package peer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Scenarios about claims, runs and completions.
var workerScenarios = []Scenario{
	{"healthy", []string{"B-4", "L-1", "C-9", "C-10", "W-1", "C-2"}, "a run succeeds, and its message is acked once", healthy},
	{"ack-after-record", []string{"C-10"}, "the write of the outcome is lost for a while", ackAfterRecord},
	{"claim-unanswered", []string{"W-2", "W-3", "W-5", "C-5"}, "a claim is stored at its second copy, and no copy is answered", claimUnanswered},
	{"claim-lost", []string{"W-4", "C-5", "K-2"}, "another node is faster with its claim", claimLost},
	{"completion-unanswered", []string{"W-3", "W-4"}, "the outcome is stored, and its answers are lost", completionUnanswered},
	{"late-completion", []string{"C-6", "K-2", "C-11"}, "another node has the slot by the time that the handler returns", lateCompletion},
	{"version-2", []string{"V-1", "V-2", "V-4"}, "a newer program has written the slot's record; another record has a payload that is too large", versionTwo},
	{"old-run", []string{"C-2", "V-3"}, "a run is offered again, whose first message was a day ago", oldRun},
	{"has-outcome", []string{"K-1", "C-2", "C-9"}, "messages of slots that have their outcomes, one of each kind", hasOutcome},
	{"contradiction", []string{"M-1"}, "a message names one slot, and its message ID another", contradiction},
	{"registry-lags", []string{"C-4"}, "a message is of a definition that is not there yet", registryLags},
	{"twice", []string{"C-1", "C-9"}, "a second message of a slot comes while the handler runs", twice},
	{"cancel", []string{"V-2", "C-7", "O-2"}, "an operator cancels a slot, first in the words of another version, and an earlier attempt of it", cancelRun},
	{"ask", []string{"C-8", "O-2"}, "another worker asks for the owner of the slot", ask},
	{"guarded", []string{"V-3", "X-1", "X-3", "X-6", "X-7"}, "a slot of a guarded job: the writes of the lock are not answered, then another node gets the slot's place while it runs", guarded},
	{"lock-stands", []string{"X-2", "X-4", "X-7", "X-8"}, "a slot finds no place, and its entry in the line is not answered; then the holder ends, whose worker has died", lockStands},
	{"lock-look", []string{"X-4"}, "the holder leaves just before the entry of a slot is in the line", lockLook},
	{"lock-line-again", []string{"X-9"}, "the line is empty, and an entry comes just before the write that says so", lockLineAgain},
	{"lock-calls", []string{"X-8"}, "a slot ends while others stand in the line: in another order than their turns, with an entry that cannot be read and one whose slot has ended", lockCalls},
	{"lock-displaced", []string{"X-8"}, "a slot under latest ends while an older and the newest one stand in the line", lockDisplaced},
	{"lock-leaves", []string{"X-6"}, "the write with which a slot leaves its lock is not answered for a while", lockLeaves},
	{"lock-lost", []string{"X-3", "X-7"}, "the holder of a lock has ended, and is reopened just before the client takes it out", lockLost},
	{"lock-skips", []string{"V-2", "X-2"}, "slots under skip behind a holder that has no record yet, then one of a newer program, and then its outcome", lockSkips},
	{"lock-places", []string{"X-1", "X-2"}, "a job has two places: one slot waits for its next attempt, and another one for a place", lockPlaces},
	{"lock-moves", []string{"X-1"}, "a claim is lost, and the slot has lost its place in the lock; another slot, of a claim that the client does not know, has none", lockMoves},
	{"lock-replaces", []string{"K-2", "X-2", "X-5"}, "a slot under replace, while an older one holds the place", lockReplaces},
	{"lock-replaces-dead", []string{"X-2"}, "the same, and the node of the older slot dies", lockReplacesDead},
	{"lock-replaces-retrying", []string{"X-2"}, "the same, and the older slot waits for its next attempt", lockReplacesRetrying},
	{"lock-replaces-late", []string{"K-1", "X-2"}, "the older slot succeeds just before it is replaced", lockReplacesLate},
	{"lock-not-on-time", []string{"X-2"}, "slots under replace that are backfilled, caught up, offered again, retried or triggered, while an older one holds the place", lockNotOnTime},
	{"lock-renewed", []string{"X-2"}, "a slot that was given a new start is still in the lock, with another node", lockRenewed},
	{"foreign-lock", []string{"M-2"}, "the lock of a job names a slot of another one, or another job", foreignLock},
	{"no-handler", []string{"O-1", "C-12", "C-13"}, "a slot without a handler here, and slots of jobs that split theirs", noHandler},
	{"not-supported", []string{"O-1", "X-1", "F-1"}, "slots that need a lock, that others come after, or that have a target for alerts", notSupported},
	{"bulk", []string{"B-2"}, "a run in the bulk lane of its queue", bulk},
	{"timer", []string{"B-2"}, "a run that was set for later", timer},
}

func healthy(s *stage) {
	node := s.works()
	id := s.offer("work", "one", 50)
	r := s.succeeds("C-2", id)
	if starts := s.did("start", id); len(starts) != 1 || starts[0].Attempt != 1 {
		s.breaks("C-2", "the handler of %s has started %d times, want once with attempt 1: %v", id, len(starts), starts)
	}
	if r.text("node") != node || r.number("attempt") != 1 {
		s.breaks("C-2", "the record has node %q and attempt %d, want %q and 1", r.text("node"), r.number("attempt"), node)
	}
	s.acked(id)
	s.queueOf(namespace+"_slots", "default", slots+"default.>")
	s.queueOf(namespace+"_slots", "default=bulk", slots+"default=bulk.>")
	s.queueOf(namespace+"_timers", "default", namespace+".timer.due.default.>")
	first := s.get("nodes", node).revision
	s.await("L-1", "three more heartbeats", func() bool {
		return len(s.tap.frames(func(f frame) bool { return f.writes(nodes, "alive") })) > 4 && s.get("nodes", node).revision > first+1
	})
}

// queueOf checks the consumer of a lane that the client has created on a stream, if there is one.
func (s *stage) queueOf(stream, lane, subject string) {
	consumer, err := s.js.Consumer(s.ctx, stream, lane)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return
	}
	s.must(err)
	got := consumer.CachedInfo().Config
	for setting, values := range map[string][2]any{
		"filter":             {got.FilterSubject, subject},
		"deliver policy":     {got.DeliverPolicy, jetstream.DeliverAllPolicy},
		"ack policy":         {got.AckPolicy, jetstream.AckExplicitPolicy},
		"ack wait":           {got.AckWait, lease},
		"max deliver":        {got.MaxDeliver, -1},
		"max ack pending":    {got.MaxAckPending, 1_000_000},
		"priority policy":    {got.PriorityPolicy, jetstream.PriorityPolicyPrioritized},
		"priority groups":    {fmt.Sprint(got.PriorityGroups), "[workers]"},
		"backoff":            {len(got.BackOff), 0},
		"inactive threshold": {got.InactiveThreshold, time.Duration(0)},
		"headers only":       {got.HeadersOnly, false},
	} {
		if values[0] != values[1] {
			s.breaks("B-4", "the consumer %s on %s has the %s %v: want %v", lane, stream, setting, values[0], values[1])
		}
	}
}

func ackAfterRecord(s *stage) {
	s.works()
	heal := s.unanswered(isOutcome, true)
	id := s.offer("work", "one", 10)
	s.starts("C-5", id)
	s.await("C-10", "the write of the outcome", func() bool { return len(s.tap.frames(isOutcome)) > 0 })
	s.sleep(silence / 2) // the oracle looks for an ack
	heal()
	s.succeeds("W-3", id)
	s.acked(id)
}

func claimUnanswered(s *stage) {
	s.works()
	heal := s.answers(isClaim, func(n int) reply { return reply{lost: n == 0, taken: true} }) // a read after the first copy finds nothing
	id := s.offer("work", "one", 10)
	s.await("W-2", "a second copy of the claim, which is not answered", func() bool {
		if len(s.did("start", id)) > 0 {
			s.fails("W-5", "the handler of %s started, although no copy of the claim was answered", id)
		}
		return len(s.tap.frames(isClaim)) > 1
	})
	s.sameWrites("W-3", "a claim", isClaim, func(int) string { return "was not answered" })
	s.never("W-5", silence*3/4, s.notStarted(id, "no copy of the claim was answered"))
	claimed := s.slot(id).revision
	heal()
	s.succeeds("W-3", id)
	if starts := s.did("start", id); len(starts) != 1 || starts[0].Fence != claimed {
		s.breaks("W-4", "the starts of %s are %v: want one with the fence %d, the revision of the claim that was stored", id, starts, claimed)
	}
}

func claimLost(s *stage) {
	s.works()
	stop := s.peer("peer-1-1-a", nil)
	var rival atomic.Uint64
	taken := s.tap.rule(func(f frame) verdict {
		if isClaim(f) && rival.Load() == 0 {
			id, _ := f.body()["id"].(string)
			if revision, err := s.put("ledger", key(id), running(id, "peer-1-1-a", 1), 0); err == nil {
				rival.Store(revision)
			}
		}
		return pass
	})
	id := s.offer("work", "one", 10)
	s.await("C-2", "a claim of "+id, func() bool { return rival.Load() > 0 })
	claimed := s.tap.frames(isClaim)[0].at
	s.await("W-4", "a read of the record at its stream's leader, after a conflict", func() bool {
		return len(s.tap.frames(func(f frame) bool {
			return f.toServer && f.subject == getLedger && f.at.After(claimed) && strings.Contains(string(f.data), key(id))
		})) > 0
	})
	s.never("C-5", silence, s.notStarted(id, "another node had claimed the slot before"))
	if now := s.slot(id); now.revision != rival.Load() {
		s.breaks("K-2", "the record of %s was written over while its owner lives: %v", id, now.value)
	}
	taken()
	_, err := s.put("ledger", key(id), ended(s.slot(id).value, "succeeded"), rival.Load())
	s.must(err)
	s.await("C-9", "the message of "+id+" to be acked, whose outcome another node wrote", func() bool { return s.inStream() == 0 })
	s.never("C-5", silence/4, s.notStarted(id, "it has its outcome"))
	stop()
}

func completionUnanswered(s *stage) {
	s.works()
	heal := s.unanswered(isOutcome, false)
	id := s.offer("work", "one", 10)
	s.await("W-3", "a second copy of the outcome, which is not answered", func() bool { return len(s.tap.frames(isOutcome)) > 1 })
	s.sameWrites("W-3", "an outcome", isOutcome, func(int) string { return "was not answered" })
	if slices.Contains(s.answersOf(id), "ack") {
		s.breaks("C-10", "the message of %s was acked, although no copy of the outcome was answered", id)
	}
	before := s.slot(id).revision
	heal()
	s.await("W-4", "the message of "+id+" to be acked", func() bool { return s.inStream() == 0 })
	if after := s.slot(id).revision; after != before || len(s.did("start", id)) != 1 {
		s.breaks("W-4", "the outcome of %s stood at revision %d and then at %d, with %d starts", id, before, after, len(s.did("start", id)))
	}
}

func lateCompletion(s *stage) {
	s.works()
	defer s.peer("peer-1-1-a", nil)()
	id := s.offer("work", "one", 1000)
	s.starts("C-5", id)
	mine := s.slot(id)
	taken := running(id, "peer-1-1-a", mine.number("attempt")+1)
	revision, err := s.put("ledger", key(id), taken, mine.revision)
	s.must(err)
	s.await("C-6", "the handler to return", func() bool { return len(s.did("end", id)) > 0 })
	delivered := time.Now()
	s.never("K-2", silence, func() string {
		if now := s.slot(id); now.revision != revision {
			return fmt.Sprintf("the record of %s, which belongs to another node at attempt 2, was written over: %v", id, now.value)
		}
		if words := s.answersOf(id); slices.ContainsFunc(words, func(w string) bool { return w != "progress" }) {
			s.breaks("C-11", "the message of %s was answered with %v, although the completion was lost", id, words)
		}
		// What the client last wrote or read of records told it that its claim is lost.
		told := s.tap.frames(func(f frame) bool { return f.writes(ledger) || f.toServer && f.subject == getLedger })
		if words := s.answersTo(id, delivered, told[len(told)-1].at.Add(lease/8)); len(words) > 0 {
			s.breaks("C-11", "the message of %s was marked as in progress after the completion was lost", id)
		}
		return ""
	})
	for _, f := range s.tap.frames(isOutcome) {
		if got, want := f.expected(), fmt.Sprint(mine.revision); got != want {
			s.breaks("C-6", "the completion of %s names revision %s: want the claim's, %s", id, got, want)
		}
	}
}

func versionTwo(s *stage) {
	s.define("work", nil, nil)
	id := "work:@one"
	v := running(id, "peer-9-9-z", 1)
	v["v"] = 2
	revision := s.set("ledger", key(id), v)
	large := "work:@large"
	v = retrying(running(large, "peer-9-9-z", 1), time.Now())
	v["payload"] = make([]byte, 262_145)
	refused := s.set("ledger", key(large), v)
	s.launch("work")
	s.offer("work", "one", 10)
	s.offer("work", "large", 10)
	s.never("V-2", silence, func() string {
		if s.slot(large).revision != refused || len(s.did("start", large)) > 0 {
			s.breaks("V-4", "%s was decided by a record whose payload has more than 262,144 bytes: %v", large, s.slot(large).text("state"))
		}
		if now := s.slot(id); now.revision != revision {
			return fmt.Sprintf("the record of version 2 was written over: %v", now.value)
		}
		if slices.Contains(s.answersOf(id), "ack") || slices.Contains(s.answersOf(id), "term") {
			return "the message was settled by a record of version 2"
		}
		return s.notStarted(id, "its record cannot be read")()
	})
	s.remove("ledger", key(id), "KV-Operation", "PURGE") // a person writes a marker over it
	s.succeeds("V-1", id)
}

func oldRun(s *stage) {
	s.define("work", nil, nil)
	id := "work:@one"
	v := retrying(running(id, "peer-9-9-z", 1), time.Now())
	v["published"], v["error"], v["x_shade"] = time.Now().UTC().Add(-25*time.Hour), "as it was", "blue"
	s.set("ledger", key(id), v)
	s.launch("work")
	s.offer("work", "one", 10)
	s.await("C-2", "an outcome of "+id+", which is older than the horizon", func() bool { return slices.Contains(final, s.slot(id).text("state")) })
	if r := s.slot(id); r.text("state") != "failed" || len(s.did("start", id)) > 0 {
		s.breaks("C-2", "%s, which is older than the horizon by its record, has started %d times and is %s: want failed", id, len(s.did("start", id)), r.text("state"))
	} else if r.text("x_shade") != "blue" {
		s.breaks("V-3", "the record lost its member x_shade: %v", r.value)
	}
}

func hasOutcome(s *stage) {
	s.define("work", nil, nil)
	before := map[string]uint64{}
	for _, state := range final {
		id := "work:@" + state
		before[id] = s.set("ledger", key(id), ended(running(id, "peer-9-9-z", 1), state))
	}
	s.launch("work")
	for _, state := range final {
		s.offer("work", state, 10)
	}
	s.await("C-9", "the messages of slots that have their outcomes to be acked", func() bool {
		for id, revision := range before {
			if s.slot(id).revision != revision || len(s.did("start", id)) > 0 {
				s.fails("K-1", "the record of %s, which had its outcome, was written over: %v", id, s.slot(id).value)
			}
		}
		return s.inStream() == 0
	})
}

func contradiction(s *stage) {
	s.works()
	s.publish("work", "work:@one", 10, "Nats-Msg-Id", "work:@two")
	s.publish("other", "work:@three", 10)
	s.await("M-1", "two messages that contradict themselves to be ended", func() bool { return s.inStream() == 0 })
	for _, id := range []string{"work:@one", "work:@two", "work:@three"} {
		if r := s.slot(id); r.value != nil || len(s.did("start", id)) > 0 {
			s.breaks("M-1", "a message that contradicts itself made a record of %s: %v", id, r.value)
		}
	}
	if words := s.answersOf("work:@one"); !slices.Contains(words, "term") {
		s.breaks("M-1", "the message was answered with %v: want term", words)
	}
}

func registryLags(s *stage) {
	s.works()
	id := s.offer("work", "one", 10, "Cronce-Job-Revision", "1000000")
	s.await("C-4", "the message of "+id+" to be given back", func() bool { return slices.Contains(s.answersOf(id), "nak") })
	s.never("C-4", silence/2, func() string {
		if r := s.slot(id); r.value != nil {
			return fmt.Sprintf("%s is %s, although the client has no definition as new as its message", id, r.text("state"))
		}
		return ""
	})
}

func twice(s *stage) {
	s.works()
	id := s.offer("work", "one", 2500)
	s.starts("C-5", id)
	m := nats.NewMsg(namespace + ".slot.default.work")
	m.Header.Set("Nats-Msg-Id", id+"/r2")
	m.Header.Set("Cronce-Slot", id)
	sent, err := s.js.PublishMsg(s.ctx, m)
	s.must(err)
	second := fmt.Sprintf(".%d.", sent.Sequence) // in the reply subject, after how often it was delivered
	s.await("C-1", "the handler to return", func() bool {
		if len(s.did("end", id)) > 0 {
			return true
		}
		for _, f := range s.tap.frames(func(f frame) bool { return f.settles() != "" }) {
			if word := f.settles(); word != "progress" || strings.HasPrefix(f.subject, "$JS.ACK."+namespace+"_slots.default.1"+second) {
				s.breaks("C-1", "a message of %s was answered with %s while its handler runs: %s", id, word, f)
			}
		}
		return false
	})
	s.succeeds("C-1", id)
	if n := len(s.did("start", id)); n != 1 {
		s.breaks("C-1", "the handler of %s started %d times", id, n)
	}
}

func cancelRun(s *stage) {
	s.define("work", nil, nil)
	s.set("ledger", "work.t.zero", ended(running("work:@zero", "peer-9-9-z", 1), "succeeded")) // so that the fence is not the first revision
	node := s.launch("work")
	id := s.offer("work", "one", 20_000)
	s.starts("C-5", id)
	fence := s.slot(id).revision
	s.must(s.nc.Publish(namespace+".node."+node+".cancel", jsonOf(value{"v": 2, "id": id, "fence": fence, "by": "alice"})))
	s.never("V-2", silence/8, func() string {
		if len(s.did("cancel", id)) > 0 {
			return "a request of version 2 ended the handler"
		}
		return ""
	})
	if answer := s.request("O-2", node, value{"v": 1, "id": id, "fence": fence - 1, "by": "alice"}); answer["ending"] == true {
		s.breaks("C-7", "a request with another fence is answered with %v", answer)
	}
	s.never("C-7", silence/4, func() string {
		if len(s.did("end", id)) > 0 {
			return "a request with another fence ended the handler"
		}
		return ""
	})
	if answer := s.request("O-2", node, value{"v": 1, "id": id, "fence": fence, "by": "alice"}); answer["ending"] != true {
		s.breaks("C-7", "a request with the fence of the claim is answered with %v: want ending", answer)
	}
	s.await("C-7", id+" to be cancelled", func() bool { return s.slot(id).text("state") == "cancelled" })
	if text := s.slot(id).text("error"); text != "cancelled by alice" {
		s.breaks("C-7", "the error is %q: want %q", text, "cancelled by alice")
	}

	heal := s.unanswered(isOutcome, true)
	id = s.offer("work", "two", 10)
	s.await("C-2", "the handler of "+id+" to return", func() bool { return len(s.did("end", id)) > 0 })
	if answer := s.request("O-2", node, value{"v": 1, "id": id, "fence": s.slot(id).revision, "by": "alice"}); answer["ending"] == true {
		s.breaks("O-2", "a request to cancel %s is answered with %v, although its handler has returned", id, answer)
	}
	heal()
	s.succeeds("C-7", id)
}

func (s *stage) request(must, node string, v value) (answer value) {
	m := nats.NewMsg(namespace + ".node." + node + ".cancel")
	m.Data = jsonOf(v)
	m.Reply = namespace + ".reply." + nats.NewInbox()[len("_INBOX."):]
	replies, err := s.nc.SubscribeSync(m.Reply)
	s.must(err)
	defer replies.Unsubscribe() //nolint:errcheck // the connection ends with the scenario
	s.must(s.nc.PublishMsg(m))
	got, err := replies.NextMsg(5 * time.Second)
	if err != nil {
		s.fails(must, "no answer to %s on %s: %v", m.Data, m.Subject, err)
	}
	answer = frame{data: got.Data}.body()
	if answer["v"] != 1.0 {
		s.breaks(must, "the answer to %s on %s is %s: want v 1", m.Data, m.Subject, got.Data)
	}
	return answer
}

func ask(s *stage) {
	node := s.works()
	holds := func(id string, revision uint64) any {
		answer := s.request("O-2", node, value{"v": 1, "id": id, "claim": revision})
		if ended, given := answer["ended"]; given && ended != false {
			s.breaks("O-2", "the node answers ended %v, and no handler of %s has outlived its context: another worker may take over an old slot by that", ended, id)
		}
		return answer["holds"]
	}
	heal := s.unanswered(isClaim, false)
	id := s.offer("work", "one", 1000)
	s.await("C-2", "a claim of "+id, func() bool { return s.slot(id).revision > 0 })
	if got := holds(id, s.slot(id).revision); got != true {
		s.breaks("C-8", "the node answers holds %v, while its claim is not answered", got)
	}
	heal()
	s.starts("C-5", id)
	if got := holds(id, s.slot(id).revision); got != true {
		s.breaks("C-8", "the node answers holds %v, while its handler runs", got)
	}
	if got := holds(id, s.slot(id).revision+1000); got != true {
		s.breaks("O-2", "the node answers holds %v about another revision, while its handler runs: want true, whatever the revision", got)
	}
	if got := holds("work:@other", 1); got != false {
		s.breaks("C-8", "the node answers holds %v for a slot that it has never seen", got)
	}
	s.succeeds("C-2", id)
}

func noHandler(s *stage) {
	s.define("work", nil, nil)
	s.define("other", nil, nil)
	s.define("split", nil, value{"shards": 2})
	// No shard of the slot that has begun has an outcome, so no node may touch the record of the whole.
	begun := "work:@begun" // its job split its slots then
	before := s.set("ledger", key(begun), value{
		"v": 1, "id": begun, "queue": "default", "state": "running", "attempt": 0, "node": "", "shards": 2, "published": time.Now().UTC(),
	})
	s.launch("work,split")
	id := s.offer("other", "one", 10)
	shard := s.offer("split", "one#1of2", 10)
	earlier := s.offer("work", "earlier#1of2", 10)
	refused := s.offer("split", "refused#1of2", 10, "Cronce-Refused", "it cannot run")
	whole := s.offer("split", "whole", 10)
	s.offer("work", "begun", 10, "Nats-Msg-Id", begun+"/r2")
	s.await("O-1", "the message of "+id+" to be given back", func() bool { return slices.Contains(s.answersOf(id), "nak") })
	s.never("O-1", silence/2, func() string {
		if s.slot(id).value != nil || slices.Contains(s.answersOf(id), "ack") || slices.Contains(s.answersOf(id), "term") {
			return id + " was decided, although no handler is here"
		}
		if slices.Contains(s.answersOf(shard), "term") {
			return shard + " was ended"
		}
		if r := s.slot(whole); r.value != nil || slices.Contains(s.answersOf(whole), "ack") || len(s.did("start", whole)) > 0 {
			s.breaks("C-12", "%s, whose job splits its slots, is %q, and its message was answered with %v: want it given back, since no shard was published", whole, r.text("state"), s.answersOf(whole))
		}
		for _, shard := range []string{shard, earlier} {
			if whole, _, _ := strings.Cut(shard, "#"); s.slot(shard).value != nil && s.slot(whole).value == nil {
				s.breaks("C-13", "the shard %s is %s, and the whole has no record", shard, s.slot(shard).text("state"))
			}
		}
		if r := s.slot(refused); r.value != nil {
			s.breaks("C-13", "the shard %s is %s: what ends a shard before the whole has begun ends the whole", refused, r.text("state"))
		}
		if s.slot(begun).revision != before || len(s.did("start", begun)) > 0 {
			return "the record of the whole of " + begun + ", whose shards have not ended, was written over"
		}
		return ""
	})
	if n := len(s.answersOf(id)); n > 10 {
		s.breaks("C-2", "the message of %s was given back %d times: want 200 ms before the second delivery, and twice as long before each further one", id, n)
	}
}

// notSupported has slots that need more than a handler. A client that does all of it runs them, and one
// that does not gives them back.
func notSupported(s *stage) {
	s.define("guarded", value{"overlap": "skip"}, nil)
	s.define("counted", value{"concurrency": 1}, nil)
	s.define("work", nil, nil)
	s.define("next", nil, value{"schedule": "", "after": []string{"work"}})
	s.define("loud", value{"attempts": 1, "timeout": "300ms", "on_failure": value{"nats": value{"subject": "alarms"}}}, nil)
	s.holdsPlace("guarded", 1)
	s.holdsPlace("counted", 1)
	follows := map[string]string{"work:@one": slots + "default.next", "loud:@one": namespace + ".event.alert.loud"}
	s.tap.rule(func(f frame) verdict {
		if f.settles() != "ack" {
			return pass
		}
		for id, subject := range follows {
			if slices.Contains(s.answersOf(id), "ack") && len(s.tap.frames(func(f frame) bool { return f.isPublish() && f.subject == subject })) == 0 {
				s.breaks("F-1", "the message of %s was acked, and nothing was published to %s: want that first, or the message given back", id, subject)
			}
		}
		return pass
	})
	s.launch("guarded,counted,work,loud")
	ids := []string{s.offer("guarded", "one", 10), s.offer("counted", "one", 10), s.offer("work", "one", 10), s.offer("loud", "one", 30_000)}
	for _, id := range ids {
		s.await("O-1", "the message of "+id+" to be acked, or to be given back", func() bool {
			return slices.ContainsFunc(s.answersOf(id), func(word string) bool { return word != "progress" })
		})
	}
	s.sleep(silence / 4)
}

func bulk(s *stage) {
	s.works()
	m := nats.NewMsg(slots + "default=bulk.work")
	m.Header.Set("Nats-Msg-Id", "work:@one")
	m.Header.Set("Cronce-Slot", "work:@one")
	s.about = "work:@one"
	m.Data = jsonOf(value{"ms": 10})
	_, err := s.js.PublishMsg(s.ctx, m)
	s.must(err)
	s.succeeds("B-2", "work:@one")
}

func timer(s *stage) {
	s.define("work", nil, nil)
	if _, err := s.js.Stream(s.ctx, namespace+"_timers"); err != nil {
		panic(leave{"the server has no timers"})
	}
	s.launch("work")
	due := time.Now().UTC().Add(time.Second)
	m := nats.NewMsg(namespace + ".timer.set.work.later")
	for name, text := range map[string]string{
		"Cronce-Slot": "work:@later", "Cronce-Node": "peer", "Cronce-Due": due.Format(time.RFC3339Nano), "Cronce-Nonce": "peer/timer",
		"Nats-Schedule": "@at " + due.Format(time.RFC3339Nano), "Nats-Schedule-Target": namespace + ".timer.due.default.work",
	} {
		m.Header.Set(name, text)
	}
	s.about = "work:@later"
	_, err := s.js.PublishMsg(s.ctx, m, jetstream.WithExpectLastSequencePerSubject(0))
	s.must(err)
	s.succeeds("B-2", "work:@later")
}
