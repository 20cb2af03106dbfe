package peer

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// Scenarios about what follows from an outcome.
var followScenarios = []Scenario{
	{"follows", []string{"F-1"}, "the slot that follows cannot be stored for a while", follows},
	{"follows-again", []string{"F-1"}, "the same, and the worker that wrote the outcome died before that", followsAgain},
	{"follows-two", []string{"F-2"}, "a job comes after two others, and the server that is asked for their records lags", followsTwo},
	{"alert", []string{"F-1", "F-3"}, "the alert for a slot that failed cannot be stored for a while", alert},
}

// beforeAck offers work:@one, whose handler works for ms milliseconds. It loses the publications that
// follow from the outcome, which match selects. Until heal is called, the client must not ack.
func (s *stage) beforeAck(must, what string, ms int, match func(frame) bool) (id string, heal func()) {
	heal = s.unstored(match)
	id = s.offer("work", "one", ms)
	acked := func() string {
		if slices.Contains(s.answersOf(id), "ack") {
			return "the message of " + id + " was acked, and " + what + " is not stored"
		}
		return ""
	}
	s.await("C-2", "an outcome of "+id, func() bool { return slices.Contains(final, s.slot(id).text("state")) })
	s.await(must, what+" to be published", func() bool {
		if why := acked(); why != "" {
			s.fails("F-1", "%s", why)
		}
		return len(s.tap.frames(match)) > 0
	})
	s.never("F-1", silence/2, acked)
	return id, heal
}

func isNext(f frame) bool { return f.isPublish() && f.subject == slots+"default.next" }

func follows(s *stage) {
	s.define("work", nil, nil)
	s.define("next", nil, value{"schedule": "", "after": []string{"work"}})
	s.launch("work,next")
	_, heal := s.beforeAck("F-2", "the slot that follows", 10, isNext)
	heal()
	s.succeeds("F-2", "next:@one")
}

// followsAgain writes the outcome before the client starts. The client finds the outcome when it
// receives the slot's message, which was not acked.
func followsAgain(s *stage) {
	s.define("work", nil, nil)
	s.define("next", nil, value{"schedule": "", "after": []string{"work"}})
	s.set("ledger", key("work:@one"), ended(running("work:@one", "peer-9-9-z", 1), "succeeded"))
	s.launch("work,next")
	_, heal := s.beforeAck("F-2", "the slot that follows", 10, isNext)
	heal()
	s.succeeds("F-2", "next:@one")
}

func followsTwo(s *stage) {
	s.define("work", nil, nil)
	s.define("side", nil, nil)
	s.define("next", nil, value{"schedule": "", "after": []string{"work", "side"}})
	s.launch("work,side,next")
	s.startedBy("C-2", s.offer("work", "one", 10), 0)
	if sent := s.tap.frames(isNext); len(sent) > 0 {
		s.fails("F-2", "%s was published when one of the two slots that it follows had succeeded", sent[0].header("Nats-Msg-Id"))
	}
	s.lags()
	s.startedBy("F-2", s.offer("side", "one", 10), 0)
	s.succeeds("F-2", "next:@one")
}

// lags leaves all records out of the answer to the client's next request for several records, as of a
// server that has not seen them yet.
func (s *stage) lags() {
	var stale atomic.Value // the reply subject of that request
	s.tap.rule(func(f frame) verdict {
		if f.isPublish() && strings.HasPrefix(f.subject, "$JS.API.DIRECT.GET.KV_"+namespace+"_ledger") && f.body()["multi_last"] != nil {
			stale.CompareAndSwap(nil, f.reply)
		}
		if !f.toServer && f.subject == stale.Load() && f.header("Nats-Subject") != "" {
			return drop
		}
		return pass
	})
}

func alert(s *stage) {
	s.define("work", value{"attempts": 1, "timeout": "300ms", "on_failure": value{"nats": value{"subject": "alarms"}}}, nil)
	s.launch("work")
	subject := namespace + ".event.alert.work"
	id, heal := s.beforeAck("F-3", "the alert", 30_000, func(f frame) bool { return f.isPublish() && f.subject == subject })
	heal()
	s.acked(id)
	events, err := s.js.Stream(s.ctx, namespace+"_events")
	s.must(err)
	m, err := events.GetLastMsgForSubject(s.ctx, subject)
	if err != nil {
		s.fails("F-3", "the message of %s was acked, and its alert cannot be read: %v", id, err)
	}
	r := s.slot(id)
	if got, want := m.Header.Get("Nats-Msg-Id"), fmt.Sprintf("%s/alert/%s/%d", id, r.text("state"), r.revision); got != want {
		s.breaks("F-3", "the message ID of the alert is %q: want %q", got, want)
	}
}
