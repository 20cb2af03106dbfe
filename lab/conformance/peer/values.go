package peer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Scenarios about values that a newer program or a stranger has written, about an edit that the client's
// watch does not deliver, about a wrong clock, and about the backoff of attempts that fail.
var valueScenarios = []Scenario{
	{"unknown-members", []string{"V-3", "V-4"}, "a newer program has written a member that no other program knows, and a result that is too large", unknownMembers},
	{"lock-2", []string{"V-2"}, "a newer program has written the lock of a job", lockTwo},
	{"absent-members", []string{"V-5"}, "records of slots, and of an owner that has fallen silent, have few members", absentMembers},
	{"job-2", []string{"V-2", "V-6"}, "a newer program has written the definition of a slot's job, or a plan of it, with a member that no other program knows", jobTwo},
	{"node-2", []string{"V-2", "M-2"}, "the record of a node that owns a slot is of a newer program, or names another node", nodeTwo},
	{"settings-2", []string{"V-2"}, "a newer program has written the settings", settingsTwo},
	{"foreign-record", []string{"M-2"}, "the record of a slot names another slot, and a definition another job", foreignRecord},
	{"another-spelling", []string{"M-3", "N-1", "C-9"}, "messages whose slot or headers have another spelling", anotherSpelling},
	{"edited-unseen", []string{"C-4"}, "a job is edited, and the client's watch of the registry does not deliver that", editedUnseen},
	{"fast-clock", []string{"L-8", "P-1"}, "the client's clock is 40 s fast, and its heartbeats arrive late", fastClock},
	{"fails", []string{"C-2", "C-16", "C-9", "C-10"}, "five attempts end by their timeout", fails},
}

// mostResult is the size of the largest result of a record, as JSON.
const mostResult = 65_536

func unknownMembers(s *stage) {
	s.define("work", nil, nil)
	id := "work:@one"
	v := retrying(running(id, "peer-9-9-z", 1), time.Now())
	v["x_shade"], v["result"] = "blue", strings.Repeat("x", mostResult)
	delete(v, "attempts")
	s.set("ledger", key(id), v)
	s.define("short", value{"timeout": "300ms"}, nil)
	fails := "short:@two" // an attempt that succeeds replaces the result
	v["id"] = fails
	s.set("ledger", key(fails), v)
	s.launch("work,short")
	s.offer("work", "one", 10)
	s.offer("short", "two", 30_000)
	r := s.succeeds("C-2", id)
	if r.text("x_shade") != "blue" {
		s.breaks("V-3", "the record lost its member x_shade: %v", r.value)
	}
	s.await("C-2", "the timeout of "+fails, func() bool { r := s.slot(fails); return r.number("attempt") > 1 && r.text("state") != "running" })
	if size := len(jsonOf(s.slot(fails).value["result"])); size > mostResult {
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

// undecided returns a text if the client has decided anything about a slot, although why.
func (s *stage) undecided(id, why string) string {
	if v := s.slot(id); v.value != nil {
		return fmt.Sprintf("%s is %s, although %s", id, v.text("state"), why)
	}
	if words := s.answersOf(id); slices.Contains(words, "ack") || slices.Contains(words, "term") {
		return fmt.Sprintf("the message of %s was answered with %v, although %s", id, words, why)
	}
	return s.notStarted(id, why)()
}

func absentMembers(s *stage) {
	s.define("work", nil, nil)
	s.define("short", value{"timeout": "300ms"}, nil)
	const bare, young, owned, owner = "work:@bare", "short:@young", "work:@owned", "peer-1-1-a"
	s.set("ledger", key(bare), value{"v": 1, "id": bare, "state": "retrying"})
	s.set("ledger", key(young), value{"v": 1, "id": young, "state": "retrying", "attempt": 1, "max_attempts": 3})
	s.set("ledger", key(owned), value{"v": 1, "id": owned, "state": "running", "attempt": 1, "node": owner})
	s.set("nodes", owner, value{"v": 1, "node": owner, "state": "alive"})
	s.launch("work,short")
	s.offer("work", "bare", 10)
	s.offer("short", "young", 30_000)
	s.offer("work", "owned", 10)
	if r := s.succeeds("V-5", bare); r.number("attempt") != 1 {
		s.breaks("V-5", "%s, whose record had no attempt, has succeeded with attempt %d: want 1", bare, r.number("attempt"))
	}
	for id, why := range map[string]string{
		young: "an attempt failed, and the record does not say when the run was published: its horizon is over",
		owned: "its owner is dead, and the record has no max_attempts: its attempts are spent",
	} {
		s.await("V-5", "an outcome of "+id, func() bool { return slices.Contains(final, s.slot(id).text("state")) })
		if r := s.slot(id); r.text("state") != "failed" {
			s.breaks("V-5", "%s is %s: want failed, because %s", id, r.text("state"), why)
		}
	}
	if starts := s.did("start", young); len(starts) != 1 || starts[0].Attempt != 2 {
		s.breaks("V-5", "the starts of %s are %v: want one, attempt 2", young, starts)
	}
}

func jobTwo(s *stage) {
	before := s.define("work", nil, nil)
	s.set("jobs", "work", value{"v": 2, "job": value{"name": "work"}})
	s.define("plan", nil, value{"x_shade": "blue"})
	s.define("past", nil, nil)
	entry := s.get("jobs", "past").value
	entry["past"] = []value{{"from": time.Now().UTC().Add(-time.Hour), "plan": value{"schedule": "none", "timezone": "UTC", "dst_gap": "after", "dst_overlap": "first", "x_shade": "blue"}}}
	s.set("jobs", "past", entry)
	s.launch("work,plan,past")
	id := s.offer("work", "one", 10, "Cronce-Job-Revision", fmt.Sprint(before))
	plans := []string{s.offer("plan", "one", 10), s.offer("past", "one", 10)}
	s.never("V-2", silence, func() string {
		for _, id := range plans {
			if why := s.undecided(id, "a plan of its job has a member that the client cannot know"); why != "" {
				s.breaks("V-6", "%s", why)
			}
		}
		return s.undecided(id, "the definition of its job has version 2")
	})
	s.define("work", nil, nil)
	s.succeeds("V-1", id)
}

func nodeTwo(s *stage) {
	s.define("work", nil, nil)
	owns := func(token, owner string, v value) (taken func(string) string) {
		before := s.set("nodes", owner, v)
		id := "work:@" + token
		claimed := s.set("ledger", key(id), running(id, owner, 1))
		return func(why string) string {
			if s.get("nodes", owner).revision != before {
				return "a node whose record " + why + " was declared dead"
			}
			if s.slot(id).revision != claimed {
				return "a slot was taken from a node whose record " + why
			}
			return s.notStarted(id, "the record of its owner "+why)()
		}
	}
	newer := owns("one", "peer-1-1-a", value{"v": 2, "node": "peer-1-1-a", "state": "alive"})
	foreign := owns("two", "peer-2-2-b", nodeRecord("peer-3-3-c", value{"state": "stopped", "running": 0}))
	s.launch("work")
	s.offer("work", "one", 10)
	s.offer("work", "two", 10)
	s.never("V-2", lease+silence, func() string {
		if why := foreign("names another node"); why != "" {
			s.breaks("M-2", "%s", why)
		}
		return newer("has version 2")
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
	entry := s.get("jobs", "work").value // names work
	s.set("jobs", "other", entry)
	s.launch("work,other")
	s.offer("work", "one", 10)
	other := s.offer("other", "one", 10)
	s.never("M-2", silence, func() string {
		if s.slot(id).revision != revision {
			return "a record that names another slot was written over"
		}
		if why := s.undecided(other, "the definition of its job names another job"); why != "" {
			return why
		}
		if words := s.answersOf(id); slices.Contains(words, "ack") || slices.Contains(words, "term") {
			return fmt.Sprintf("the message of %s was answered with %v by a record of another slot", id, words)
		}
		return s.notStarted(id, "its record names another slot")()
	})
	s.remove("ledger", key(id), "Nats-Marker-Reason", "MaxAge")
	s.define("other", nil, nil)
	s.succeeds("M-2", id)
	s.succeeds("M-2", other)
}

func anotherSpelling(s *stage) {
	s.works()
	unreadable := [][2]string{
		{"Cronce-Slot", "work:@ two"}, {"Cronce-Slot", "work:2026-11-21T07:00:00.0Z"}, {"Cronce-Slot", "work:@x#01of2"},
		{"Cronce-Job-Revision", "0x1"}, {"Cronce-Due", "yesterday"}, {"Cronce-Due", "2026-11-21"}, {"Cronce-Due", "2026-11-21T7:00:00Z"}, {"Cronce-Missed", "1e0"},
	}
	const good = "work:@good"
	s.about = good
	var ids []string
	for i, header := range unreadable {
		id := fmt.Sprintf("work:@%d", i)
		if header[0] == "Cronce-Slot" {
			id = header[1]
		}
		ids = append(ids, s.publish("work", id, 10, header[0], header[1]))
	}
	s.offer("work", "good", 10)
	s.succeeds("C-2", good)
	for _, id := range ids {
		s.await("C-9", "the message of "+id+", which cannot be read, to be given back", func() bool { return len(s.answersOf(id)) > 0 })
	}
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

// behind drops what the client's watch of a bucket delivers about keys that begin with this text. What
// the client reads itself passes.
func (s *stage) behind(bucket, keys string) (stop func()) {
	return s.tap.rule(func(f frame) verdict {
		if !f.toServer && strings.HasPrefix(f.subject, "$KV."+namespace+"_"+bucket+"."+keys) {
			return drop
		}
		return pass
	})
}

func editedUnseen(s *stage) {
	s.define("work", nil, nil)
	s.launch("work,late")
	s.startedBy("C-2", s.offer("work", "before", 10), 0) // the client has seen the definition
	s.behind("jobs", "")
	revision := s.define("work", value{"attempts": 7}, nil)
	id := s.offer("work", "one", 10, "Cronce-Job-Revision", fmt.Sprint(revision))
	decided := func(id string) func() bool {
		return func() bool { return s.slot(id).value != nil || slices.Contains(s.answersOf(id), "nak") }
	}
	s.await("C-4", "a decision about "+id, decided(id))
	if r := s.slot(id); r.value != nil && r.number("max_attempts") != 7 {
		s.breaks("C-4", "%s, whose message names the definition at revision %d, has max_attempts %d: want 7, as that definition says", id, revision, r.number("max_attempts"))
	}
	s.define("late", nil, nil)
	late := s.offer("late", "one", 10)
	s.await("C-2", "a decision about "+late, decided(late))
	if r := s.slot(late); slices.Contains(final, r.text("state")) && r.text("state") != "succeeded" {
		s.breaks("C-2", "%s is %s (%s): its job is in the registry, and only the client's watch has not seen it", late, r.text("state"), r.text("error"))
	}
}

func fastClock(s *stage) {
	s.define("work", nil, nil)
	s.define("tick", nil, value{"schedule": everySecond})
	const fast = 40 * time.Second
	// The broker stamps a heartbeat just before it acknowledges it, so the client's estimate of the
	// broker's clock is fast by half of this.
	s.arrivesLate(func(f frame) bool { return f.writes(nodes) }, lease/5)
	node := s.launch("work", fmt.Sprintf("CRONCE_UNDER_TEST_CLOCK_OFFSET_MS=%d", fast.Milliseconds()))
	s.succeeds("C-2", s.offer("work", "first", 10)) // it may wait for several heartbeats before it acts, and need not publish
	due := time.Now().UTC().Add(2 * time.Second)
	id := s.offer("work", "one", 10, "Cronce-Due", due.Format(time.RFC3339Nano))
	s.starts("L-8", id)
	for _, f := range s.tap.frames(func(f frame) bool { return isClaim(f) && f.body()["id"] == id }) {
		if before := due.Sub(f.at); before > 0 {
			s.breaks("L-8", "%s was claimed %v before its time, by a clock that is %v fast", id, before.Round(time.Millisecond), fast)
		}
	}
	s.never("L-8", silence/2, func() string {
		for _, f := range s.published("tick") {
			at, err := time.Parse(time.RFC3339, strings.TrimPrefix(f.header("Nats-Msg-Id"), "tick:"))
			if early := at.Sub(f.at); err == nil && early > 0 {
				s.breaks("P-1", "%s was published %v before its instant, by a clock that is %v fast", f.header("Nats-Msg-Id"), early.Round(time.Millisecond), fast)
			}
		}
		if t := s.watermark().instant("time"); t.After(time.Now()) {
			return fmt.Sprintf("the watermark is at %v, in the future, by a clock that is %v fast", t, fast)
		}
		return ""
	})
	r := s.succeeds("C-2", id)
	if at := r.instant("finished"); time.Until(at) > fast/2 {
		s.breaks("L-8", "the record of %s has finished %v, by a clock that is %v fast", id, at, fast)
	}
	offset, err := time.ParseDuration(s.get("nodes", node).text("clock_offset"))
	if err != nil || (offset+fast).Abs() > fast/4 {
		s.breaks("L-8", "clock_offset is %q: want -%v, the broker's clock minus the node's own", s.get("nodes", node).text("clock_offset"), fast)
	}
}

// arrivesLate delays those publications of the client that match selects.
func (s *stage) arrivesLate(match func(frame) bool, d time.Duration) {
	s.tap.rule(func(f frame) verdict {
		if !f.isPublish() || !match(f) {
			return pass
		}
		header, err := nats.DecodeHeadersMsg(f.head)
		if err != nil {
			return pass
		}
		m := &nats.Msg{Subject: f.subject, Reply: f.reply, Header: header, Data: slices.Clone(f.data)}
		time.AfterFunc(d, func() { _ = s.nc.PublishMsg(m) })
		return drop
	})
}

// fails has five attempts, so that their backoff doubles twice and meets its bound twice.
func fails(s *stage) {
	const first, most = 250 * time.Millisecond, time.Second
	s.define("work", value{"attempts": 5, "backoff": first.String(), "max_backoff": most.String(), "timeout": "200ms"}, nil)
	s.launch("work")
	id := s.offer("work", "one", 30_000)
	s.await("C-2", "the first attempt of "+id+" to end by its timeout, and to be retried", func() bool {
		return s.slot(id).text("state") == "retrying" || s.slot(id).number("attempt") > 1
	})
	s.await("C-2", id+" to fail, after five attempts that ended by their timeout", func() bool { return s.slot(id).text("state") == "failed" })
	r := s.slot(id)
	attempts, _ := r.value["attempts"].([]any)
	if len(attempts) != 5 || len(s.did("start", id)) != 5 || r.text("error") == "" {
		s.fails("C-2", "the record of %s is %v, after %d starts: want five attempts and an error", id, r.value, len(s.did("start", id)))
	}
	instant := func(attempt int, name string) time.Time {
		members, _ := attempts[attempt-1].(map[string]any)
		return stored{value: members}.instant(name)
	}
	want := func(attempt int) time.Duration { return min(first<<(attempt-1), most) }
	for attempt := 1; attempt < len(attempts); attempt++ {
		if pause := instant(attempt+1, "started").Sub(instant(attempt, "finished")); pause < want(attempt)*2/5 {
			s.breaks("C-2", "attempt %d began %v after the one before: want the backoff of %v, with some jitter", attempt+1, pause, want(attempt))
		}
	}
	for _, f := range s.tap.frames(func(f frame) bool { return f.writes(ledger, "retrying") }) {
		r := stored{value: f.body()}
		again := r.instant("retry_at")
		const slack = 200 * time.Millisecond // a client may read its clock twice
		attempt := r.number("attempt")
		if backoff := again.Sub(instant(attempt, "finished")); backoff < want(attempt)*3/4-slack || backoff > want(attempt)*5/4+slack {
			s.breaks("C-16", "attempt %d is to be followed %v later: want %v, doubled from %v and at most %v, times 0.75 to 1.25", attempt, backoff, want(attempt), first, most)
		}
	}
	if words := s.answersOf(id); !slices.Contains(words, "nak") || len(words) > 50 {
		s.breaks("C-9", "the message of %s was answered with %v: want a nak after the attempt that is retried, with the delay until the next one", id, words)
	}
	s.acked(id)
}
