package peer

import (
	"fmt"
	"time"
)

// Scenarios about runs that the client triggers itself.
var triggerScenarios = []Scenario{
	{"trigger", []string{"W-1", "M-4"}, "the client triggers a run, whose message cannot be stored for a while, and waits for the outcome", trigger},
}

func trigger(s *stage) {
	revision := s.define("work", value{"payload": value{"ms": 1000}}, nil)
	s.about = "work:@mine"
	match := func(f frame) bool { return f.isPublish() && f.subject == slots+"default.work" }
	heal := s.unstored(match)
	s.launch("work", "CRONCE_UNDER_TEST_TRIGGER="+s.about)
	for limit := time.Now().Add(lease); len(s.did("trigger", s.about)) == 0; s.sleep(50 * time.Millisecond) {
		if time.Now().After(limit) {
			panic(leave{"it triggers no runs"})
		}
	}
	s.await("M-4", "a third copy of the run's message, since none was stored", func() bool { return len(s.tap.frames(match)) > 2 })
	sent := s.tap.frames(match)
	for _, f := range sent[1:] {
		if !sameHeaders(f, sent[0]) || string(f.data) != string(sent[0].data) {
			s.breaks("M-4", "a later copy of the message differs from the first: %q and %q", sent[0].head, f.head)
		}
	}
	f := sent[0]
	if f.header("Nats-Msg-Id") != s.about || f.header("Cronce-Slot") != s.about || f.header("Cronce-Job-Revision") != fmt.Sprint(revision) {
		s.fails("M-4", "the message of %s, of a definition at revision %d, has the headers %q", s.about, revision, f.head)
	}
	heal()
	s.await("W-1", "the client to say that "+s.about+" has ended", func() bool { return len(s.did("outcome", s.about)) > 0 })
	if said, state := s.did("outcome", s.about)[0].Result, s.slot(s.about).text("state"); said != state || state != "succeeded" {
		s.breaks("W-1", "the client says that the outcome of %s is %q, and its record is %s", s.about, said, state)
	}
	s.startedBy("M-4", s.about, 0)
}
