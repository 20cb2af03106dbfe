package peer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Scenarios about publishing and the watermark.
var producerScenarios = []Scenario{
	{"publication-unanswered", []string{"M-4", "P-3"}, "slots cannot be published for a while", publicationUnanswered},
	{"removed", []string{"P-14"}, "slots cannot be published for a while, and meanwhile a job is removed, one is paused, and the definition of one is broken", removed},
	{"cut-off", []string{"P-15"}, "a slot cannot be published for a while, the connection is lost, and when it is back, the slot is late", cutOff},
	{"away", []string{"M-8", "P-2", "P-3", "V-3"}, "no producer lived for longer than the horizon, and then a publication is lost for a while", away},
	{"newer-zone", []string{"O-4"}, "another producer and a worker have newer time zone data; the producer dies, and then there is a new one", newerZone},
	{"definition-2", []string{"P-6", "O-3"}, "a newer program has written a definition, or a plan with a member that no other program knows", definitionTwo},
	{"registry-unseen", []string{"P-4"}, "a job is defined, and the client's watch of the registry does not deliver that; then the client connects again", registryUnseen},
	{"watermark-ahead", []string{"P-5"}, "the watermark is ahead of the client's", watermarkAhead},
	{"watermark-2", []string{"P-8"}, "a newer program has written the watermark", watermarkTwo},
	{"future-t", []string{"P-9"}, "another producer announces that all is published, up to tomorrow", futureT},
	{"silent-t", []string{"P-10"}, "another producer lives, and never announces what it has published", silentT},
	{"ghost-t", []string{"P-13"}, "a producer announces all that is due, whose node was declared dead", ghostT},
	{"wrong-clock", []string{"P-7", "C-3"}, "the client's clock is two hours fast", func(s *stage) { wrongClock(s, 2*time.Hour) }},
	{"wrong-clock-slow", []string{"P-7", "C-3"}, "the client's clock is two hours slow", func(s *stage) { wrongClock(s, -2*time.Hour) }},
	{"events-unanswered", []string{"P-12"}, "a message that starts a job, whose slot cannot be stored", eventsUnanswered},
}

const everySecond = "* * * * * *"

// published returns the slot messages that the client has sent for a job.
func (s *stage) published(name string) []frame {
	return s.tap.frames(func(f frame) bool { return f.publishesTo("default", name) })
}

// publishes waits until the client has published some slots of a job. The fleet has no other
// producer.
func (s *stage) publishes(must, name string, n int) {
	s.await(must, fmt.Sprintf("%d slots of %s to be published", n, name), func() bool {
		ids := map[string]bool{}
		for _, f := range s.published(name) {
			ids[f.header("Nats-Msg-Id")] = true
		}
		return len(ids) >= n
	})
}

func (s *stage) watermark() stored { return s.get("state", "watermark") }

// moves waits until the client has moved the watermark.
func (s *stage) moves(must string) {
	before := s.watermark().revision
	s.await(must, "the watermark to move", func() bool { return s.watermark().revision > before })
}

func publicationUnanswered(s *stage) {
	s.define("tick", nil, value{"schedule": everySecond})
	s.launch("")
	s.publishes("P-1", "tick", 2)
	s.moves("P-3")
	heal := s.unstored(func(f frame) bool { return f.publishesTo("default", "tick") })
	lost := time.Now()
	first := ""
	s.await("M-4", "a slot to be published again, since nothing answers", func() bool {
		copies := map[string][]frame{}
		for _, f := range s.published("tick") {
			if f.at.After(lost) {
				id := f.header("Nats-Msg-Id")
				copies[id] = append(copies[id], f)
				if first == "" || id < first {
					first = id
				}
			}
		}
		for _, all := range copies {
			s.likeTheFirst("M-4", all)
			if len(all) > 1 {
				return true
			}
		}
		return false
	})
	due, err := time.Parse(time.RFC3339, strings.TrimPrefix(first, "tick:"))
	s.must(err)
	s.never("P-3", 3*silence, func() string { // the client for Node.js moves it every five seconds at worst
		if t := s.watermark().instant("time"); !t.Before(due) {
			return fmt.Sprintf("the watermark is at %v, and %s is not acknowledged", t, first)
		}
		return ""
	})
	heal()
	s.await("M-4", "the watermark to move past "+first, func() bool {
		return s.watermark().instant("time").After(due)
	})
}

// removed has slots of three jobs fall due while none can be published. Then each job ends in another
// way. The client must still publish the slots that were due before.
func removed(s *stage) {
	jobs := []string{"gone", "held", "broken"}
	since := map[string]time.Time{}
	for _, name := range jobs {
		s.define(name, nil, value{"schedule": everySecond})
		since[name] = s.get("jobs", name).at
	}
	s.launch("")
	for _, name := range jobs {
		s.publishes("P-1", name, 1)
	}
	heal := s.unstored(func(f frame) bool { return f.isPublish() && strings.HasPrefix(f.subject, slots) })
	lost := time.Now()
	s.sleep(silence)
	s.remove("jobs", "gone")
	held := s.get("jobs", "held").value
	held["paused"], held["since"] = true, since["held"]
	s.set("jobs", "held", held)
	broken := s.get("jobs", "broken").value
	broken["job"].(value)["plan"] = value{"schedule": "61 * * * *"}
	s.set("jobs", "broken", broken)
	s.sleep(silence / 2) // by then the client knows of it
	healed := time.Now().Add(-silence / 100)
	heal()
	for _, name := range jobs {
		ended := s.get("jobs", name).at
		for at := lost.Truncate(time.Second).Add(time.Second); !at.After(ended); at = at.Add(time.Second) {
			id := name + ":" + at.UTC().Format(time.RFC3339)
			s.await("P-14", fmt.Sprintf("%s to be published, which was due before the job ended at %s", id, ended.UTC().Format(time.RFC3339Nano)), func() bool {
				return slices.ContainsFunc(s.published(name), func(f frame) bool { return f.at.After(healed) && f.header("Nats-Msg-Id") == id })
			})
		}
	}
}

// cutOff has a slot that is not late when it is first published. No publication of it is answered until
// it is late.
func cutOff(s *stage) {
	s.launch("")
	due := time.Now().UTC().Add(-45 * time.Second).Truncate(time.Second)
	heal := s.unstored(func(f frame) bool { return f.publishesTo("default", "once") })
	once := value{"name": "once", "overlap": "allow", "plan": value{"schedule": "@at " + due.Format(time.RFC3339)}}
	s.set("jobs", "once", value{"v": 1, "job": once, "since": due.Add(-time.Second), "owner": "operator", "node": "peer"})
	s.publishes("P-1", "once", 1)
	if first := s.published("once")[0]; first.header("Cronce-Caught-Up") != "" || first.header("Cronce-Missed") != "" {
		panic(leave{"it published the slot so late that there was nothing to judge anew"})
	}
	s.sleep(time.Until(due.Add(time.Minute + silence)))
	s.awayFor(silence)
	back := time.Now()
	heal()
	s.await("P-15", "the slot to be published again, with the connection", func() bool {
		return slices.ContainsFunc(s.published("once"), func(f frame) bool { return f.at.After(back) })
	})
	for _, f := range s.published("once") {
		if f.at.After(back) && f.header("Cronce-Caught-Up") != "1" {
			s.breaks("P-15", "the slot is more than a minute late, and is published by what was decided before the connection was lost: %q", f.head)
		}
	}
}

// awayFor takes the client's connection away for a while.
func (s *stage) awayFor(d time.Duration) {
	connect := s.tap.rule(func(frame) verdict { return drop })
	s.tap.Disconnect()
	s.sleep(d)
	connect()
	s.tap.Disconnect() // a connection that began meanwhile would wait for the server's INFO, which was lost
}

// sameHeaders compares headers in any order.
func sameHeaders(a, b frame) bool {
	return slices.Equal(slices.Sorted(strings.Lines(string(a.head))), slices.Sorted(strings.Lines(string(b.head))))
}

func newerZone(s *stage) {
	s.define("tick", nil, value{"schedule": everySecond})
	edited, now := s.get("jobs", "tick").value, time.Now().UTC()
	edited["since"], edited["past"] = now, []value{{ // the zone of any plan counts
		"from": now.Add(-time.Hour), "plan": value{"schedule": "@yearly", "timezone": "Europe/Berlin", "dst_gap": "after", "dst_overlap": "first"},
	}}
	s.set("jobs", "tick", edited)
	newer := value{"producer": true, "tzdata": "9999z"}
	s.peer("peer-3-3-c", value{"tzdata": "9999z"}) // a worker moves no watermark, whatever its data
	die := s.peer("peer-1-1-a", newer)
	s.launch("")
	stays := func(d time.Duration) {
		s.stays("O-4", d, "state", "watermark", "the watermark was moved by the client, whose time zone data are older than those of a producer that lives")
	}
	stays(lease)
	die()
	s.moves("O-4") // no newer producer lives any more
	s.peer("peer-2-2-b", newer)
	s.sleep(silence / 2) // by then the client knows of it
	stays(silence)
}

func definitionTwo(s *stage) {
	s.define("tick", nil, value{"schedule": everySecond})
	s.set("jobs", "newer", value{"v": 2, "job": value{"name": "newer"}})
	s.launch("")
	s.publishes("P-6", "tick", 2)
	stays := func(must, what string) {
		s.stays(must, silence, "state", "watermark", "the watermark was moved, although "+what+" stands in the registry")
	}
	stays("P-6", "a definition of version 2")
	s.define("newer", nil, value{"schedule": everySecond, "x_shade": "blue"})
	stays("O-3", "a plan with a member that the client cannot know")
	s.remove("jobs", "newer")
	s.moves("P-6")
}

// registryUnseen writes definitions that the client's watch does not deliver: first while the client
// starts, and later until it reconnects. Each time the watch delivers another definition before the one
// that was missed.
func registryUnseen(s *stage) {
	heal := s.behind("jobs", "edited")
	passed := s.definesUnseen("edited")
	s.define("tick", nil, value{"schedule": everySecond})
	s.define("edited", nil, value{"schedule": everySecond}) // again, so that its last write comes after that of tick
	s.start("")
	asks := func(f frame) bool {
		return f.isPublish() && strings.Contains(f.subject, "KV_"+namespace+"_jobs")
	}
	for limit := time.Now().Add(patience / 2); len(s.tap.frames(asks)) == 0 && time.Now().Before(limit); { // a busy machine takes long to start it
		s.sleep(silence / 100)
	}
	s.never("P-4", 2*silence, passed)
	s.connectsAgain(heal)
	s.publishesUnseen("edited", passed)
	s.moves("P-4")

	heal = s.behind("jobs", "other")
	passed = s.definesUnseen("other")
	s.moves("P-4")
	s.never("P-4", 2*silence, passed)
	s.connectsAgain(heal)
	s.publishesUnseen("other", passed)
}

// definesUnseen defines a job with a slot every second. passed returns a text if the client has published
// none of the slots, and has moved the watermark to the definition's revision and past two slots.
func (s *stage) definesUnseen(name string) (passed func() string) {
	revision, defined := int(s.define(name, nil, value{"schedule": everySecond})), time.Now()
	return func() string {
		mark := s.watermark()
		t := mark.instant("time")
		if r := mark.number("registry_revision"); r >= revision && t.After(defined.Add(2*time.Second)) && len(s.published(name)) == 0 {
			return fmt.Sprintf("the watermark has registry revision %d, and the client has not seen the definition of %s at revision %d", r, name, revision)
		}
		return ""
	}
}

// connectsAgain ends the client's connection, calls heal, and defines a job that the client's watch
// delivers.
func (s *stage) connectsAgain(heal func()) {
	s.tap.Disconnect()
	heal()
	s.define("heard", nil, nil)
}

func (s *stage) publishesUnseen(name string, passed func() string) {
	s.await("P-4", "a slot of "+name+" to be published", func() bool {
		if why := passed(); why != "" {
			s.fails("P-4", "%s", why)
		}
		return len(s.published(name)) > 0
	})
}

func watermarkAhead(s *stage) {
	s.define("tick", nil, value{"schedule": everySecond})
	s.launch("")
	s.moves("P-3")
	ahead := time.Now().UTC().Add(time.Minute)
	mine := s.watermark()
	mark := mine.value
	mark["time"], mark["registry_revision"], mark["node"] = ahead, 0, "peer-1-1-a" // of a producer that has seen less of the registry
	s.set("state", "watermark", mark)
	s.never("P-5", lease+silence, func() string {
		if t := s.watermark().instant("time"); t.Before(ahead) {
			return fmt.Sprintf("the watermark went back from %v to %v", ahead, t)
		}
		return ""
	})
	mark["time"], mark["registry_revision"] = time.Now().UTC(), 1_000_000 // as of a producer that has seen more of the registry
	s.set("state", "watermark", mark)
	s.never("P-5", lease+2*silence, func() string {
		if r := s.watermark().number("registry_revision"); r < 1_000_000 {
			return fmt.Sprintf("the watermark's registry revision went back from 1000000 to %d", r)
		}
		return ""
	})
}

func watermarkTwo(s *stage) {
	s.define("tick", nil, value{"schedule": everySecond})
	before := s.set("state", "watermark", value{"v": 2, "time": time.Now().UTC(), "registry_revision": 1, "node": "peer"})
	s.launch("")
	s.publishes("P-8", "tick", 3)
	s.never("P-8", silence, func() string {
		if s.watermark().revision != before {
			return "a watermark of version 2 was written over"
		}
		return ""
	})
}

// shares acts as a producer that shares the work with the client. It announces what say returns, with
// the members and the registry of the client's own announcements.
func (s *stage) shares(say func() value) {
	own := value{"v": 1, "node": sharing, "started": sharingSince, "kind": "here", "members": "0123456789abcdef", "registry": "0123456789abcdef"}
	var mu sync.Mutex
	same := value{} // what the client has announced last
	speak := func() {
		mu.Lock()
		defer mu.Unlock()
		v := value{}
		for _, m := range []value{own, same, say()} {
			maps.Copy(v, m)
		}
		_ = s.nc.Publish(namespace+".producers", jsonOf(v))
	}
	words, err := s.nc.Subscribe(namespace+".producers", func(m *nats.Msg) {
		heard := frame{data: m.Data}.body()
		if heard["node"] == sharing {
			return
		}
		mu.Lock()
		for _, k := range []string{"members", "registry"} {
			if heard[k] != nil {
				same[k] = heard[k]
			}
		}
		mu.Unlock()
		speak()
	})
	s.must(err)
	done := make(chan struct{})
	s.cleanups = append(s.cleanups, func() { close(done); _ = words.Unsubscribe() })
	go func() { // it also announces unasked
		for {
			select {
			case <-done:
				return
			case <-time.After(200 * time.Millisecond):
				speak()
			}
		}
	}()
}

// sharing is the name of the producer as which shares acts.
const sharing = "peer-1-1-a"

var sharingSince = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// publishesAll has eight jobs with a slot every second, of which some are the other producer's
// share, and waits until the client has published slots of each. why says what would keep a client from
// that.
func (s *stage) publishesAll(must, why string, say func() value) {
	const jobs, enough = 8, 3
	for i := range jobs {
		s.define(fmt.Sprintf("tick%d", i), nil, value{"schedule": everySecond})
	}
	s.shares(say)
	s.launch("")
	met := time.Now().Add(silence) // by then the two know of each other
	for i := range jobs {
		name := fmt.Sprintf("tick%d", i)
		for limit := time.Now().Add(patience); s.publishedSince(name, met) < enough; s.sleep(50 * time.Millisecond) {
			if time.Now().After(limit) {
				s.fails(must, "the client has published %d slots of %s in time, which falls due every second, and no other producer has: want %d. Either it takes longer than some seconds for them, or %s", s.publishedSince(name, met), name, enough, why)
			}
		}
	}
}

// publishedSince counts the slots of a job that were due within some seconds after an instant, and that
// the client has published in time. A client that publishes them late may have found out only by an audit
// that the announcement was false.
func (s *stage) publishedSince(name string, after time.Time) int {
	const some, inTime = 6 * time.Second, 12 * time.Second
	ids := map[string]bool{}
	for _, f := range s.published(name) {
		id := f.header("Nats-Msg-Id")
		if at, err := time.Parse(time.RFC3339, strings.TrimPrefix(id, name+":")); err == nil && at.After(after) && at.Before(after.Add(some)) && f.at.Sub(at) < inTime {
			ids[id] = true
		}
	}
	return len(ids)
}

func futureT(s *stage) {
	s.peer(sharing, value{"producer": true, "started": sharingSince})
	tomorrow := time.Now().UTC().Add(24 * time.Hour)
	s.publishesAll("P-9", "it believes another producer, which announces that all is published up to tomorrow", func() value { return value{"time": tomorrow} })
}

func silentT(s *stage) {
	s.peer(sharing, value{"producer": true, "started": sharingSince})
	s.publishesAll("P-10", "it waits for another producer, which takes part and does not announce a T", func() value { return nil })
}

// ghostT announces what the client would believe if the announcing node were alive.
func ghostT(s *stage) {
	s.set("nodes", sharing, nodeRecord(sharing, value{
		"state": "fenced", "started": sharingSince, "producer": true, "worker": false, "running": 0, "fenced_by": "peer-2-2-b", "fenced_at": time.Now().UTC(),
	}))
	s.publishesAll("P-13", "it believes a producer whose node was declared dead", func() value { return value{"time": time.Now().UTC()} })
}

func wrongClock(s *stage, off time.Duration) {
	revision := s.define("tick", nil, value{"schedule": everySecond})
	s.define("work", nil, nil)
	s.launch("tick,work", fmt.Sprintf("CRONCE_UNDER_TEST_CLOCK_OFFSET_MS=%d", off.Milliseconds()))
	at := time.Now().UTC().Add(-25 * time.Hour).Truncate(time.Second)
	id := s.publish("tick", "tick:"+at.Format(time.RFC3339), 10, "Cronce-Job-Revision", fmt.Sprint(revision))
	s.never("P-7", lease, func() string {
		if sent := s.published("tick"); len(sent) > 0 {
			return fmt.Sprintf("a producer whose clock is two hours off publishes %s", sent[0].header("Nats-Msg-Id"))
		}
		if v := s.watermark(); v.value != nil {
			return "a producer whose clock is two hours off moved the watermark"
		}
		if r := s.slot(id); r.value != nil {
			s.breaks("C-3", "a worker whose clock is two hours off ended %s for its age: %s", id, r.text("state"))
		}
		return ""
	})
	s.succeeds("C-2", s.offer("work", "one", 10)) // what does not depend on age runs
}

func eventsUnanswered(s *stage) {
	_, err := s.js.CreateStream(s.ctx, jetstream.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}})
	s.must(err)
	s.define("work", nil, value{"schedule": "", "on": value{"stream": "orders", "subject": "orders.new"}})
	s.launch("work")
	heal := s.unstored(func(f frame) bool { return f.publishesTo("default", "work") })
	m := nats.NewMsg("orders.new")
	m.Header.Set("Nats-Msg-Id", "order-1")
	_, err = s.js.PublishMsg(s.ctx, m)
	s.must(err)
	consumer := func() *jetstream.ConsumerInfo {
		c, err := s.js.Consumer(s.ctx, "orders", "cronce_"+namespace+"=work")
		if err != nil {
			return nil
		}
		return c.CachedInfo()
	}
	for limit := time.Now().Add(lease); consumer() == nil; s.sleep(50 * time.Millisecond) {
		if time.Now().After(limit) {
			panic(leave{"it takes no messages of streams"})
		}
	}
	s.await("P-12", "the slot of the message to be published", func() bool { return len(s.published("work")) > 0 })
	s.never("P-12", silence/2, func() string {
		if consumer().AckFloor.Stream > 0 {
			return "the message was acked, although its slot is not stored"
		}
		return ""
	})
	heal()
	s.about = "work:@order-1"
	s.succeeds("P-12", s.about)
}

// away has a job with more late slots than are judged singly: the newest runs, the others are missed,
// and those beyond 1000 are one message.
func away(s *stage) {
	now := time.Now().UTC()
	began := now.Add(-25 * time.Hour).Truncate(time.Minute)
	const queue = "elsewhere" // it has no worker: the client only publishes
	s.define("tick", value{"queue": queue}, value{"schedule": "* * * * *"})
	ticks := func(f frame) bool { return f.publishesTo(queue, "tick") }
	entry := s.get("jobs", "tick").value
	entry["since"] = began.Add(-time.Hour)
	revision := s.set("jobs", "tick", entry)
	before := s.set("state", "watermark", value{
		"v": 1, "time": began, "registry_revision": revision, "registry_time": began, "node": "peer-1-1-a", "x_shade": "blue",
	})
	inRange := func(f frame) bool { return ticks(f) && strings.HasPrefix(f.header("Nats-Msg-Id"), "tick:m.") }
	var one atomic.Value // of the slots that are judged singly
	healOne := s.unstored(func(f frame) bool {
		if !ticks(f) || f.header("Cronce-Missed") != "1" || inRange(f) {
			return false
		}
		one.CompareAndSwap(nil, f.header("Nats-Msg-Id"))
		return one.Load() == f.header("Nats-Msg-Id")
	})
	heal := s.unstored(inRange)
	s.launch("")
	s.await("P-2", "a late slot to be published as missed", func() bool { return one.Load() != nil })
	s.never("P-2", silence/2, func() string {
		if len(s.tap.frames(inRange)) > 0 {
			return fmt.Sprintf("the range is published, and %s is not acknowledged", one.Load())
		}
		return ""
	})
	healOne()
	s.await("P-2", "one message for the late slots beyond the newest 1000", func() bool { return len(s.tap.frames(inRange)) > 0 })
	s.never("P-3", silence/2, func() string {
		if s.watermark().revision != before {
			return fmt.Sprintf("the watermark was moved to %s before the oldest missed slots were acknowledged", s.watermark().text("time"))
		}
		return ""
	})
	first := s.tap.frames(inRange)[0]
	if id, want := first.header("Nats-Msg-Id"), "tick:m."+began.Add(time.Minute).Format(time.RFC3339); id != want {
		s.breaks("P-2", "the range is %s, want %s, the oldest slot that is not published", id, want)
	}
	heal()
	s.await("P-3", "the watermark to move past the missed slots", func() bool {
		return now.Sub(s.watermark().instant("time")) < time.Minute
	})
	if mark := s.watermark(); mark.text("x_shade") != "blue" {
		s.breaks("V-3", "the watermark lost its member x_shade: %v", mark.value)
	}
	late := map[string]string{} // the headers Cronce-Missed and Cronce-Caught-Up of each late slot
	seen := map[string]bool{}
	for _, f := range s.tap.frames(ticks) {
		id := f.header("Nats-Msg-Id")
		if seen[id] {
			continue // a client that was suspended judges its slots anew, and publishes copies
		}
		seen[id] = true
		at, err := time.Parse(time.RFC3339, strings.TrimPrefix(id, "tick:"))
		if said := f.header("Cronce-Missed") + " " + f.header("Cronce-Caught-Up"); err == nil && said != " " {
			late[id] = said
			if f.at.Sub(at) < time.Minute-5*time.Second {
				s.breaks("P-2", "%s is not late, and is published as missed or caught up", id)
			}
		}
	}
	var newest string
	for id, said := range late {
		if newest = max(newest, id); said != "1 " && said != " 1" {
			s.breaks("P-2", "the late slot %s has Cronce-Missed and Cronce-Caught-Up %q: want one of them", id, said)
		}
	}
	caughtUp := 0
	for _, said := range late {
		if said == " 1" {
			caughtUp++
		}
	}
	if len(late) != 1000 || caughtUp != 1 || late[newest] != " 1" {
		s.breaks("P-2", "%d late slots were published singly, %d of them caught up, and the newest has Cronce-Missed and Cronce-Caught-Up %q: want 1000, and the newest alone caught up", len(late), caughtUp, late[newest])
	}
}
