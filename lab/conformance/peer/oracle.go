package peer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cronce-io/cronce/job"
)

var final = []string{"succeeded", "failed", "skipped", "missed", "expired", "cancelled"}

const (
	ledger = "$KV." + namespace + "_ledger."
	state  = "$KV." + namespace + "_state."
	nodes  = "$KV." + namespace + "_nodes."
	slots  = namespace + ".slot."

	waits = namespace + ".wait."

	getLedger = "$JS.API.STREAM.MSG.GET.KV_" + namespace + "_ledger"
)

// body returns the data of a frame as a JSON object, or nil if it is not one.
func (f frame) body() (v value) {
	_ = json.Unmarshal(f.data, &v)
	return v
}

// writes reports whether the frame is a publication of the client to a subject with this prefix, of a
// value in one of these states. Without states, the value does not matter.
func (f frame) writes(subject string, states ...string) bool {
	if !f.isPublish() || !strings.HasPrefix(f.subject, subject) {
		return false
	}
	word, _ := f.body()["state"].(string)
	return len(states) == 0 || slices.Contains(states, word)
}

// settles returns how the client answers a message of a slot: "ack", "nak", "term" or
// "progress"; "" if the frame is no such answer.
func (f frame) settles() string {
	if !f.isPublish() || !strings.HasPrefix(f.subject, "$JS.ACK.") || !strings.Contains(f.subject, "."+namespace+"_slots.") && !strings.Contains(f.subject, "."+namespace+"_timers.") {
		return ""
	}
	switch text := string(f.data); {
	case text == "" || strings.HasPrefix(text, "+ACK"), strings.HasPrefix(text, "+NXT"):
		return "ack"
	case strings.HasPrefix(text, "-NAK"):
		return "nak"
	case strings.HasPrefix(text, "+TERM"):
		return "term"
	default:
		return "progress"
	}
}

// createsQueue reports whether the client asks the server to create a consumer of a queue.
func (f frame) createsQueue() bool {
	return strings.HasPrefix(f.subject, "$JS.API.CONSUMER.") &&
		(strings.Contains(f.subject, "CREATE."+namespace+"_slots.") || strings.Contains(f.subject, "CREATE."+namespace+"_timers."))
}

// delivered has the slot of each message that was delivered to the client, and the client's answer to
// it, both by the message's reply subject.
type delivered struct {
	mu     sync.Mutex
	slots  map[string]string
	answer map[string]string
}

// watch adds a rule to the tap that checks what must hold in every scenario.
func (s *stage) watch() {
	d := &delivered{slots: map[string]string{}, answer: map[string]string{}}
	s.tap.rule(func(f frame) verdict {
		switch {
		case !f.toServer && f.op == "HMSG" && strings.HasPrefix(f.reply, "$JS.ACK."):
			d.mu.Lock()
			d.slots[f.reply] = f.header("Cronce-Slot")
			d.mu.Unlock()
		case f.isPublish() && strings.HasPrefix(f.subject, "$KV.") && f.expected() == "":
			s.breaks("W-1", "the client writes %s without a revision", f.subject)
		case f.isPublish() && strings.HasPrefix(f.subject, slots):
			s.inItsLane(f)
		case f.isPublish() && strings.HasPrefix(f.subject, state+"lock."):
			s.keepsHolders(f)
		case f.isPublish() && strings.HasPrefix(f.subject, "$JS.API.STREAM.UPDATE."), f.isPublish() && strings.HasPrefix(f.subject, "$JS.API.STREAM.DELETE."):
			s.breaks("B-3", "the client asks for %s", f.subject)
		case f.isPublish() && f.createsQueue() && f.body()["action"] != "create":
			s.breaks("B-4", "the client asks for %s with the action %q: want create, which does not update a consumer that another worker has just created", f.subject, f.body()["action"])
		case f.settles() != "" && f.settles() != "progress":
			s.settled(d, f)
		}
		return pass
	})
}

// willBeWon reports whether a write names the last revision of its key, so that the server will store
// it.
func (s *stage) willBeWon(f frame, bucket, key string) bool {
	v, err := s.lookup(bucket, key)
	return err == nil && f.expected() == fmt.Sprint(v.revision)
}

// keepsHolders checks that a write of a lock takes out no slot that has not ended.
func (s *stage) keepsHolders(f frame) {
	before, err := s.lookup("state", strings.TrimPrefix(f.subject, state))
	if err != nil || f.expected() != fmt.Sprint(before.revision) {
		return // it will be refused
	}
	kept := string(jsonOf(f.body()["holders"]))
	holders, _ := before.value["holders"].([]any)
	for _, h := range holders {
		holder, _ := h.(map[string]any)
		id, _ := holder["id"].(string)
		if strings.Contains(kept, string(jsonOf(id))) {
			continue
		}
		if r, err := s.lookup("ledger", key(id)); err == nil && !slices.Contains(final, r.text("state")) {
			s.breaks("X-1", "%s is taken out of its job's lock, and has not ended: its record is %q", id, r.text("state"))
		}
	}
}

// settled judges an answer before it reaches the server: there must be no other one to the same message,
// and an ack of a triggered run must come after its outcome.
func (s *stage) settled(d *delivered, f frame) {
	d.mu.Lock()
	id, before := d.slots[f.subject], d.answer[f.subject]
	d.answer[f.subject] = f.settles()
	d.mu.Unlock()
	if before != "" {
		s.breaks("C-9", "the client answers one message of %s twice: %s and then %s", id, before, f.settles())
	}
	if f.settles() != "ack" || id == "" {
		return
	}
	s.hasLeft(id)
	if !strings.Contains(id, ":@") {
		return
	}
	if _, err := job.ParseSlotID(id); err != nil {
		s.breaks("C-10", "the client acks a message whose slot cannot be read: %q", id)
		return
	}
	v, err := s.lookup("ledger", key(id))
	if err == nil && v.value == nil && strings.Contains(id, "#") { // what ends a shard may end the whole
		v, err = s.lookup("ledger", key(id[:strings.LastIndex(id, "#")]))
	}
	if err == nil && v.text("state") == "waiting" {
		s.standsInLine(id, v)
		return
	}
	if err == nil && !slices.Contains(final, v.text("state")) && (v.value["shards"] == nil || strings.Contains(id, "#")) { // a message for the whole only asks
		s.breaks("C-10", "the client acks the message of %s while its record is %q at revision %d", id, v.text("state"), v.revision)
	}
}

// hasLeft checks that a slot whose message is acked has left its job's lock, if this client held the place
// for it and wrote its outcome.
func (s *stage) hasLeft(id string) {
	slot, err := job.ParseSlotID(id)
	if err != nil {
		return
	}
	whole := slot.Whole()
	lock, err := s.lookup("state", "lock."+slot.Job)
	r, recordErr := s.lookup("ledger", whole.Key())
	if err != nil || recordErr != nil || !slices.Contains(final, r.text("state")) {
		return
	}
	if h := lock.holder(whole.ID()); h != nil && h["node"] == r.value["node"] {
		s.breaks("X-6", "the message of %s, which has its outcome, is acked before it has left its job's lock: %v", id, lock.value)
	}
}

// standsInLine checks that a slot whose message is acked while its record v is waiting has an entry in its job's
// line, and that the lock says so.
func (s *stage) standsInLine(id string, v stored) {
	name, _, _ := strings.Cut(id, ":")
	lock, err := s.lookup("state", "lock."+name)
	if err != nil || lock.holder(id) != nil { // it has been called
		return
	}
	switch e, err := s.entryOf(name, id); {
	case err != nil:
	case e == nil:
		s.breaks("X-4", "the message of %s is acked while its record is waiting, and the line of its job has no entry of it", id)
	case lock.value["waiting"] != true:
		s.breaks("X-4", "the message of %s is acked while it stands in the line, and its job's lock does not say that slots wait: %v", id, lock.value)
	}
}

// publishesTo reports whether the frame is a slot message of the client for a job, in either lane of a queue.
func (f frame) publishesTo(queue, name string) bool {
	return f.isPublish() && (f.subject == slots+queue+"."+name || f.subject == slots+queue+"=bulk."+name)
}

// inItsLane checks in which lane of its queue the client publishes a slot message.
func (s *stage) inItsLane(f frame) {
	slot, err := job.ParseSlotID(f.header("Cronce-Slot"))
	if err != nil {
		return
	}
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return f.header(name) != "" })
	}
	offered := f.header("Nats-Msg-Id") != f.header("Cronce-Slot")
	want := !offered && !has("Cronce-Chained") && (slot.Token != "" || slot.Range || has("Cronce-Caught-Up", "Cronce-Backfill", "Cronce-Missed"))
	if isBulk := strings.Contains(f.subject, "=bulk."); isBulk != want {
		s.breaks("M-8", "a message is published to %s with the headers %q: want it in the bulk lane: %t", f.subject, f.head, want)
	}
}

// forgotten reports whether a message of a slot was redelivered because its ack wait ended before the
// client answered.
func (s *stage) forgotten(id string) bool {
	again := s.tap.frames(func(f frame) bool {
		return !f.toServer && f.header("Cronce-Slot") == id && strings.HasPrefix(f.reply, "$JS.ACK."+namespace+"_slots.default.2.")
	})
	return len(again) > 0 && !slices.Contains(s.answersOf(id), "nak")
}

// answersOf returns how the client has answered the messages of a slot.
func (s *stage) answersOf(id string) (words []string) {
	return s.answersTo(id, time.Now(), time.Time{})
}

// answersTo returns how the client has answered the messages of a slot that were delivered before the
// time before. It leaves out the answers from before the time since.
func (s *stage) answersTo(id string, before, since time.Time) (words []string) {
	replies := map[string]bool{}
	for _, f := range s.tap.frames(func(frame) bool { return true }) {
		if !f.toServer && f.header("Cronce-Slot") == id && strings.HasPrefix(f.reply, "$JS.ACK.") && f.at.Before(before) {
			replies[f.reply] = true
		}
		if word := f.settles(); word != "" && replies[f.subject] && !f.at.Before(since) {
			words = append(words, word)
		}
	}
	return words
}
