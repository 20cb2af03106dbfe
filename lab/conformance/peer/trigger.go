package peer

import (
	"fmt"
	"strings"
	"time"
)

// Scenarios about runs that the client triggers itself.
var triggerScenarios = []Scenario{
	{"trigger", []string{"W-1", "M-4", "M-7", "M-8"}, "the client triggers a run, whose message cannot be stored for a while, and waits for the outcome; then it is to trigger that run again", trigger},
	{"trigger-later", []string{"W-1", "W-3", "M-6", "M-7"}, "the client triggers a run for later, whose timer is stored by a copy that is not answered; before it is due, the client is to trigger it again", triggerLater},
	{"trigger-large", []string{"M-5"}, "the client is to trigger a run with the largest payload that there may be, and then one whose payload is too large", triggerLarge},
}

// order starts the client with an environment variable that asks it to trigger the run s.about.
func (s *stage) order(variable, text string) {
	before := len(s.did("trigger", s.about))
	s.launch("work", "CRONCE_UNDER_TEST_"+variable+"="+text)
	for limit := time.Now().Add(3 * lease); len(s.did("trigger", s.about)) == before; s.sleep(50 * time.Millisecond) {
		if time.Now().After(limit) {
			panic(leave{"it triggers no such runs"})
		}
	}
}

// saysOutcome waits until the client says how the run that it triggered has ended.
func (s *stage) saysOutcome() {
	s.await("W-1", "the client to say that "+s.about+" has ended", func() bool { return len(s.did("outcome", s.about)) > 0 })
	if said, state := s.did("outcome", s.about)[0].Result, s.slot(s.about).text("state"); said != state || state != "succeeded" {
		s.breaks("W-1", "the client says that the outcome of %s is %q, and its record is %s", s.about, said, state)
	}
}

// ordersAgain has the next process of the client trigger the run s.about, which exists already.
func (s *stage) ordersAgain(variable, text string) {
	s.terminates("L-7")
	before, said := time.Now(), len(s.did("outcome", s.about))
	s.order(variable, text)
	s.await("M-7", "the client to say that "+s.about+" has ended, which it triggers again", func() bool { return len(s.did("outcome", s.about)) > said })
	for _, f := range s.tap.frames(func(f frame) bool { return f.isPublish() && f.header("Cronce-Slot") == s.about && f.at.After(before) }) {
		s.breaks("M-7", "the run %s is there, and the client orders it again: %s", s.about, f)
	}
}

// likeTheFirst checks that later copies of a message equal the first one.
func (s *stage) likeTheFirst(must string, sent []frame) {
	for _, f := range sent[1:] {
		if !sameHeaders(f, sent[0]) || string(f.data) != string(sent[0].data) {
			s.breaks(must, "a later copy of the message differs from the first: %q and %q", sent[0].head, f.head)
		}
	}
}

func trigger(s *stage) {
	revision := s.define("work", value{"payload": value{"ms": 1000}}, nil)
	s.about = "work:@mine"
	match := func(f frame) bool { return f.publishesTo("default", "work") }
	heal := s.unstored(match)
	s.order("TRIGGER", s.about)
	s.await("M-4", "a third copy of the run's message, since none was stored", func() bool { return len(s.tap.frames(match)) > 2 })
	sent := s.tap.frames(match)
	s.likeTheFirst("M-4", sent)
	f := sent[0]
	if f.header("Nats-Msg-Id") != s.about || f.header("Cronce-Slot") != s.about || f.header("Cronce-Job-Revision") != fmt.Sprint(revision) || f.header("Cronce-Due") != "" {
		s.fails("M-4", "the message of %s, of a definition at revision %d, has the headers %q", s.about, revision, f.head)
	}
	heal()
	s.saysOutcome()
	s.startedBy("M-4", s.about, 0)
	s.ordersAgain("TRIGGER", s.about)
}

// triggerLater answers the first copy of the timer with the error of a write in progress, loses the
// second, and stores the third without an answer. The server refuses the fourth, because the run has its
// timer.
func triggerLater(s *stage) {
	if _, err := s.js.Stream(s.ctx, namespace+"_timers"); err != nil {
		panic(leave{"the server has no timers"})
	}
	revision := s.define("work", value{"payload": value{"ms": 10}}, nil)
	s.about = "work:@a=b"
	timers := func(f frame) bool {
		return f.isPublish() && strings.HasPrefix(f.subject, namespace+".timer.set.")
	}
	s.answersFirst(timers, refusal(10164, "last sequence by subject: in process", false), reply{lost: true, taken: true}, reply{taken: true})
	due := time.Now().UTC().Add(3 * lease).Truncate(time.Millisecond) // a client whose process starts later has it run at once, rightly
	order := s.about + " " + due.Format(time.RFC3339Nano)
	s.order("TRIGGER_LATER", order)
	s.await("W-3", "a fourth copy of the timer, since none was answered", func() bool {
		if len(s.did("start", s.about)) > 0 && time.Now().Before(due) || len(s.tap.frames(func(f frame) bool { return f.isPublish() && strings.HasPrefix(f.subject, slots) })) > 0 {
			s.fails("M-6", "%s was triggered for %s, and the client has it run at once", s.about, due)
		}
		return len(s.tap.frames(timers)) > 3
	})
	sent := s.tap.frames(timers)
	s.likeTheFirst("W-3", sent)
	f := sent[0]
	if f.expected() != "0" {
		s.breaks("W-1", "the timer of %s is not written at revision 0: %q", s.about, f.head)
	}
	at, isAt := strings.CutPrefix(f.header("Nats-Schedule"), "@at ")
	switch {
	case f.subject != namespace+".timer.set.work.a=3Db":
		s.breaks("M-6", "the timer of %s is published to %s", s.about, f.subject)
	case !isAt || !sameTime(at, due) || !sameTime(f.header("Cronce-Due"), due), f.header("Nats-Schedule-Target") != namespace+".timer.due.default.work",
		f.header("Nats-Msg-Id") != "", f.header("Cronce-Nonce") == "", f.header("Cronce-Slot") != s.about, f.header("Cronce-Job-Revision") != fmt.Sprint(revision):
		s.breaks("M-6", "the timer of %s for %s, of a definition at revision %d, has the headers %q", s.about, due, revision, f.head)
	}
	s.ordersAgain("TRIGGER_LATER", order) // while its timer stands
	s.saysOutcome()
	s.startedBy("M-6", s.about, 0)
}

func sameTime(text string, want time.Time) bool {
	got, err := time.Parse(time.RFC3339Nano, text)
	return err == nil && got.Equal(want)
}

func triggerLarge(s *stage) {
	const most = 262_144
	s.define("work", value{"attempts": 1}, nil)
	s.about = "work:@most"
	s.order("TRIGGER_LARGE", fmt.Sprint(s.about, " ", most))
	s.await("M-5", "the client to say what became of "+s.about, func() bool { return len(s.did("outcome", s.about)) > 0 })
	if said, state := s.did("outcome", s.about)[0].Result, s.slot(s.about).text("state"); said != state || len(s.did("start", s.about)) == 0 {
		s.breaks("M-5", "the client says that the outcome of %s, whose payload has %d bytes, is %q, and its record is %q: want it run", s.about, most, said, state)
	}
	s.terminates("L-7")

	s.about = "work:@large"
	s.order("TRIGGER_LARGE", fmt.Sprint(s.about, " ", most+1))
	s.await("M-5", "the client to say what became of "+s.about, func() bool { return len(s.did("outcome", s.about)) > 0 })
	for _, f := range s.tap.frames(func(f frame) bool { return f.isPublish() && f.header("Cronce-Slot") == s.about }) {
		s.breaks("M-5", "the client publishes a message of %s with %d bytes, whose payload has %d: at most %d are possible", s.about, len(f.data), most+1, most)
	}
	if said := s.did("outcome", s.about)[0].Result; said != "refused" {
		s.breaks("M-5", "the client says that the outcome of %s, whose payload is too large, is %q: want refused", s.about, said)
	}
}
