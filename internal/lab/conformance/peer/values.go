package peer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Scenarios about values that a newer program or a stranger has written, and about a view of the
// registry and a clock that are behind.
var valueScenarios = []Scenario{
	{"unknown-members", []string{"V-3", "V-4"}, "a newer program has written a member that no other program knows, and a result that is too large", unknownMembers},
	{"lock-2", []string{"V-2"}, "a newer program has written the lock of a job", lockTwo},
	{"job-2", []string{"V-2"}, "a newer program has written the definition of a slot's job", jobTwo},
	{"node-2", []string{"V-2"}, "a newer program has written the record of a node that owns a slot", nodeTwo},
	{"settings-2", []string{"V-2"}, "a newer program has written the settings", settingsTwo},
	{"foreign-record", []string{"M-2"}, "the record of a slot names another slot", foreignRecord},
	{"another-spelling", []string{"M-3", "N-1", "C-9"}, "messages whose slot or headers have another spelling", anotherSpelling},
	{"edited-unseen", []string{"C-4"}, "a job is edited, and the client's watch of the registry does not deliver that", editedUnseen},
	{"fast-clock", []string{"L-8"}, "the client's clock is 40 s fast", fastClock},
	{"fails", []string{"C-2", "C-9", "C-10"}, "two attempts end by their timeout", fails},
}

// mostResult is the size of the largest result of a record, as JSON.
const mostResult = 65_536

func unknownMembers(s *stage) {
	s.define("work", nil, nil)
	id := "work:@one"
	v := ended(running(id, "peer-9-9-z", 1), "retrying")
	v["retry_at"], v["x_shade"], v["result"] = time.Now().UTC(), "blue", strings.Repeat("x", mostResult)
	delete(v, "finished")
	delete(v, "attempts")
	s.set("ledger", key(id), v)
	s.launch("work")
	s.offer("work", "one", 10)
	r := s.succeeds("C-2", id)
	if r.text("x_shade") != "blue" {
		s.breaks("V-3", "the record lost its member x_shade: %v", r.value)
	}
	if size := len(jsonOf(r.value["result"])); size > mostResult {
		s.breaks("V-4", "the record still has the result of %d bytes that it had: want result_dropped in its place, as for more than %d bytes", size, mostResult)
	}
}

func lockTwo(s *stage) {
	s.define("work", value{"overlap": "queue"}, nil)
	revision := s.set("state", "lock.work", value{"v": 2, "job": "work", "holders": []value{}})
	s.launch("work")
	id := s.offer("work", "one", 10)
	s.never("V-2", silence, func() string {
		if s.get("state", "lock.work").revision != revision {
			return "a lock of version 2 was written over"
		}
		return s.undecided(id, "the lock of its job has version 2")
	})
	s.set("state", "lock.work", value{"v": 1, "job": "work", "holders": []value{}})
	s.succeeds("V-1", id)
}

// undecided says what the client has decided about a slot that it cannot decide about.
func (s *stage) undecided(id, why string) string {
	if v := s.slot(id); v.value != nil {
		return fmt.Sprintf("%s is %s, although %s", id, v.text("state"), why)
	}
	if words := s.answersOf(id); slices.Contains(words, "ack") || slices.Contains(words, "term") {
		return fmt.Sprintf("the message of %s was answered with %v, although %s", id, words, why)
	}
	return s.notStarted(id, why)()
}

func jobTwo(s *stage) {
	before := s.define("work", nil, nil)
	s.set("jobs", "work", value{"v": 2, "job": value{"name": "work"}})
	s.launch("work")
	id := s.offer("work", "one", 10, "Cronce-Job-Revision", fmt.Sprint(before))
	s.never("V-2", silence, func() string { return s.undecided(id, "the definition of its job has version 2") })
	s.define("work", nil, nil)
	s.succeeds("V-1", id)
}

func nodeTwo(s *stage) {
	s.define("work", nil, nil)
	const owner = "peer-1-1-a"
	before := s.set("nodes", owner, value{"v": 2, "node": owner, "state": "alive"})
	id := "work:@one"
	claimed := s.set("ledger", key(id), running(id, owner, 1))
	s.launch("work")
	s.offer("work", "one", 10)
	s.never("V-2", lease+silence, func() string {
		if s.get("nodes", owner).revision != before {
			return "a node whose record has version 2 was declared dead"
		}
		if s.slot(id).revision != claimed {
			return "a slot was taken from a node whose record has version 2"
		}
		return s.notStarted(id, "the record of its owner has version 2")()
	})
}

func settingsTwo(s *stage) {
	s.define("work", nil, nil)
	v := s.get("state", "settings").value
	v["v"] = 2
	s.set("state", "settings", v)
	s.start("work")
	id := s.offer("work", "one", 10)
	s.never("V-2", silence, func() string {
		for _, n := range s.nodes() {
			return fmt.Sprintf("node %s has started, although the settings have version 2", n.text("node"))
		}
		return s.undecided(id, "the settings have version 2")
	})
}

func foreignRecord(s *stage) {
	s.define("work", nil, nil)
	id := "work:@one"
	v := ended(running("work:@two", "peer-9-9-z", 1), "succeeded")
	revision := s.set("ledger", key(id), v)
	s.launch("work")
	s.offer("work", "one", 10)
	s.never("M-2", silence, func() string {
		if s.slot(id).revision != revision {
			return "a record that names another slot was written over"
		}
		if words := s.answersOf(id); slices.Contains(words, "ack") || slices.Contains(words, "term") {
			return fmt.Sprintf("the message of %s was answered with %v by a record of another slot", id, words)
		}
		return s.notStarted(id, "its record names another slot")()
	})
	s.remove("ledger", key(id))
	s.succeeds("M-2", id)
}

func anotherSpelling(s *stage) {
	s.define("work", nil, nil)
	s.launch("work")
	unreadable := [][2]string{
		{"Cronce-Slot", "work:@ two"}, {"Cronce-Slot", "work:2026-11-21T07:00:00.0Z"}, {"Cronce-Slot", "work:@x#01of2"},
		{"Cronce-Job-Revision", "0x1"}, {"Cronce-Due", "yesterday"}, {"Cronce-Missed", "1e0"},
	}
	for i, headers := range unreadable {
		m := nats.NewMsg(slots + "default.work")
		id := fmt.Sprintf("work:@%d", i)
		m.Header.Set("Cronce-Slot", id)
		m.Header.Set(headers[0], headers[1])
		m.Header.Set("Nats-Msg-Id", m.Header.Get("Cronce-Slot"))
		_, err := s.js.PublishMsg(s.ctx, m)
		s.must(err)
	}
	good := s.offer("work", "good", 10)
	s.succeeds("C-2", good)
	stream, err := s.js.Stream(s.ctx, "KV_"+namespace+"_ledger")
	s.must(err)
	s.never("M-3", silence/2, func() string {
		info, err := stream.Info(s.ctx, jetstream.WithSubjectFilter(ledger+">"))
		s.must(err)
		for subject := range info.State.Subjects {
			if subject != ledger+key(good) {
				return "a message that cannot be read made the record " + strings.TrimPrefix(subject, ledger)
			}
		}
		if left := s.inStream(); left < len(unreadable) {
			s.breaks("C-9", "of %d messages that cannot be read %d are left: a newer program may be able to read one, until it is older than the horizon", len(unreadable), left)
		}
		return ""
	})
}

// behind keeps what is written to the registry from the client's watch, until heal is called.
// What the client reads itself passes.
func (s *stage) behind() (heal func()) {
	return s.tap.rule(func(f frame) verdict {
		if !f.toServer && strings.HasPrefix(f.subject, "$KV."+namespace+"_jobs.") {
			return drop
		}
		return pass
	})
}

func editedUnseen(s *stage) {
	s.define("work", nil, nil)
	s.launch("work")
	s.startedBy("C-2", s.offer("work", "before", 10), 0) // the client has seen the definition
	s.behind()
	revision := s.define("work", value{"attempts": 7}, nil)
	id := s.offer("work", "one", 10, "Cronce-Job-Revision", fmt.Sprint(revision))
	s.await("C-4", "a decision about "+id, func() bool { return s.slot(id).value != nil || slices.Contains(s.answersOf(id), "nak") })
	if r := s.slot(id); r.value != nil && r.number("max_attempts") != 7 {
		s.breaks("C-4", "%s, whose message names the definition at revision %d, has max_attempts %d: want 7, as that definition says", id, revision, r.number("max_attempts"))
	}
}

func fastClock(s *stage) {
	s.define("work", nil, nil)
	s.define("tick", nil, value{"schedule": everySecond})
	const fast = 40 * time.Second
	node := s.launch("work", fmt.Sprintf("CRONCE_UNDER_TEST_CLOCK_OFFSET_MS=%d", fast.Milliseconds()))
	due := time.Now().UTC().Add(2 * time.Second)
	id := s.offer("work", "one", 10, "Cronce-Due", due.Format(time.RFC3339Nano))
	s.starts("L-8", id)
	if before := time.Until(due); before > 0 {
		s.breaks("L-8", "%s started %v before its time, by a clock that is %v fast", id, before.Round(time.Millisecond), fast)
	}
	s.never("L-8", silence/2, func() string {
		for _, f := range s.published("tick") {
			at, err := time.Parse(time.RFC3339, strings.TrimPrefix(f.header("Nats-Msg-Id"), "tick:"))
			if early := at.Sub(f.at); err == nil && early > 0 {
				return fmt.Sprintf("%s was published %v before its instant, by a clock that is %v fast", f.header("Nats-Msg-Id"), early.Round(time.Millisecond), fast)
			}
		}
		if t, _ := time.Parse(time.RFC3339Nano, s.watermark().text("time")); t.After(time.Now()) {
			return fmt.Sprintf("the watermark is at %v, in the future, by a clock that is %v fast", t, fast)
		}
		return ""
	})
	r := s.succeeds("C-2", id)
	if at, _ := time.Parse(time.RFC3339Nano, r.text("finished")); time.Until(at) > fast/2 {
		s.breaks("L-8", "the record of %s has finished %v, by a clock that is %v fast", id, at, fast)
	}
	offset, err := time.ParseDuration(s.get("nodes", node).text("clock_offset"))
	if err != nil || (offset+fast).Abs() > fast/4 {
		s.breaks("L-8", "clock_offset is %q: want -%v, the broker's clock minus the node's own", s.get("nodes", node).text("clock_offset"), fast)
	}
}

func fails(s *stage) {
	s.define("work", value{"attempts": 2, "backoff": "1s", "max_backoff": "1s", "timeout": "300ms"}, nil)
	s.launch("work")
	id := s.offer("work", "one", 30_000)
	s.await("C-2", "the first attempt of "+id+" to end by its timeout, and to be retried", func() bool {
		return s.slot(id).text("state") == "retrying" || s.slot(id).number("attempt") > 1
	})
	s.await("C-2", id+" to fail, after two attempts that ended by their timeout", func() bool { return s.slot(id).text("state") == "failed" })
	r := s.slot(id)
	attempts, _ := r.value["attempts"].([]any)
	if len(attempts) != 2 || len(s.did("start", id)) != 2 || r.text("error") == "" {
		s.fails("C-2", "the record of %s is %v, after %d starts: want two attempts and an error", id, r.value, len(s.did("start", id)))
	}
	first, _ := attempts[0].(map[string]any)
	second, _ := attempts[1].(map[string]any)
	finished, _ := time.Parse(time.RFC3339Nano, stored{value: first}.text("finished"))
	started, _ := time.Parse(time.RFC3339Nano, stored{value: second}.text("started"))
	if pause := started.Sub(finished); pause < 400*time.Millisecond { // the backoff, with some jitter
		s.breaks("C-2", "the second attempt began %v after the first one: want the backoff of 1s, with some jitter", pause)
	}
	if words := s.answersOf(id); !slices.Contains(words, "nak") {
		s.breaks("C-9", "the message of %s was answered with %v: want a nak after the attempt that is retried", id, words)
	}
	s.await("C-9", "the message of "+id+" to be acked", func() bool { return s.inStream() == 0 })
}
