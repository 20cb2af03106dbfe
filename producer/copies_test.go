package producer

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// desk is an outbox, its board and one older peer, whose word is what a test says.
type desk struct {
	*outbox
	t     *testing.T
	peer  *peer
	sent  []core.Message
	reply []func(duplicate bool, err error)
}

func newDesk(t *testing.T) *desk {
	d := &desk{t: t}
	board := testBoard(position{time: epoch})
	p, err := New(Config{Node: "self", Registry: brokenRegistry{}, Watermark: &view{}, Slots: d, Clock: &view{}})
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(Config{Node: "self", Started: epoch}, board.rules)
	f.hear(core.Announcement{Node: "peer", Kind: core.AnnounceHere}, time.Now())
	d.outbox, d.peer = newOutbox(p, f, board), f.peers["peer"]
	d.review()
	return d
}

func (d *desk) Connected() bool { return true }

func (d *desk) Send(_ string, m core.Message, _ []byte, answered func(bool, error)) error {
	d.sent, d.reply = append(d.sent, m), append(d.reply, answered)
	return nil
}

// acknowledge answers all that was sent.
func (d *desk) acknowledge() {
	for _, answer := range d.reply {
		answer(false, nil)
	}
	d.reply = nil
	d.answered()
}

func (d *desk) review() { d.fleet.review(time.Now(), true, d.board.digest) }

// say has the peer announce, as one that agrees with us.
func (d *desk) say(until time.Time, except ...string) {
	d.fleet.hear(core.Announcement{
		Node: "peer", Kind: core.AnnounceHere, Time: until, Except: except, Members: d.fleet.members, Registry: d.fleet.registry,
	}, time.Now())
	d.believe(d.peer, d.board)
}

// apply puts n jobs of the peer's share on the board, which run each second, and returns
// their names.
func (d *desk) apply(n int, revision uint64) (names []string) {
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprint("job", i); d.fleet.first(name) == d.peer {
			names = append(names, name)
			e := core.Entry{Revision: revision + uint64(i), Time: epoch}
			e.Job = job.Job{Name: name, Schedule: "* * * * * *"}
			d.board.apply(core.RegistryEvent{Name: name, Revision: e.Revision, Entry: e}, epoch)
		}
	}
	d.review()
	return names
}

// due moves what is due from the board to the outbox.
func (d *desk) due(now time.Time) {
	slots, done := d.board.due(nil, now, maxChunk)
	if !done {
		d.t.Fatal("more is due than a test needs")
	}
	d.add(slots, now)
	d.mark(d.board.position(now))
}

// Copies that become our duty are owed to the marks that were made after they were
// handed out, and before.
func TestAMarkWaitsForCopiesThatBecameOurs(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.apply(3, 1)
	first, second := epoch.Add(time.Second), epoch.Add(2*time.Second)
	d.due(first)
	d.due(second)
	if len(d.sent) > 0 || d.standing != 6 {
		t.Fatalf("%d sent and %d held of six copies", len(d.sent), d.standing)
	}
	d.release(d.peer, time.Now())
	if len(d.sent) != 6 || d.standing != 0 || d.own() != 6 {
		t.Fatalf("%d sent, %d held, %d owed after the peer fell silent", len(d.sent), d.standing, d.own())
	}
	claims := func(when string, want time.Time) {
		t.Helper()
		if pos, ok := d.claim(); ok != !want.IsZero() || ok && !pos.time.Equal(want) {
			t.Errorf("%s: %v, %v may be claimed, want %v", when, pos.time, ok, want)
		}
		if until, _, _ := d.share(); !until.Equal(want) {
			t.Errorf("%s: the share is announced up to %v, want %v", when, until, want)
		}
	}
	claims("nothing is acknowledged", time.Time{})
	for _, answer := range d.reply[:3] {
		answer(false, nil)
	}
	d.reply = d.reply[3:]
	d.answered()
	claims("the first second is acknowledged", first)
	d.acknowledge()
	claims("all is acknowledged", second)
}

// What a peer says with a newer registry says nothing of a slot of a plan that
// it may never have known.
func TestACopyOfAnEarlierDefinitionIsHeld(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	names := d.apply(2, 1)
	at := epoch.Add(time.Second)
	d.due(at)
	e := core.Entry{Revision: 1000, Time: at}
	e.Job = job.Job{Name: names[0], Schedule: "@yearly"}
	d.board.apply(core.RegistryEvent{Name: names[0], Revision: e.Revision, Entry: e}, at)
	d.review()
	d.say(at)
	if d.standing != 1 || len(d.sent) > 0 {
		t.Fatalf("%d copies are held and %d sent, want that of the job that was edited to be held", d.standing, len(d.sent))
	}
	d.release(d.peer, time.Now())
	if len(d.sent) != 1 || d.sent[0].Slot.Job != names[0] || d.sent[0].JobRevision == 1000 {
		t.Errorf("published %+v, want the slot of the earlier plan of %s", d.sent, names[0])
	}
}

// A range is published after all other late slots of its job, also those that the
// peer publishes.
func TestARangeWaitsForTheLateCopies(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*desk, time.Time){
		"the peer publishes them": func(d *desk, now time.Time) { d.say(now) },
		"we do": func(d *desk, now time.Time) {
			d.release(d.peer, time.Now())
			if n := len(d.sent); n != core.MaxMissed {
				d.t.Errorf("%d sent before any of them was acknowledged, want %d", n, core.MaxMissed)
			}
			d.acknowledge()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.apply(1, 1)
			now := epoch.Add(time.Hour)
			slots, _ := d.board.due(nil, now, maxChunk)
			slots = slices.DeleteFunc(slots, func(s dueSlot) bool { return !s.isLate() })
			d.add(slots, now)
			if len(d.sent) > 0 || d.standing != core.MaxMissed {
				t.Fatalf("%d sent and %d held of %d", len(d.sent), d.standing, len(slots))
			}
			end(d, now)
			if n := len(d.sent); n == 0 || !d.sent[n-1].Slot.Range {
				t.Fatal("the range was not published")
			}
			d.acknowledge()
			if len(d.tasks) > 0 || d.open != 0 {
				t.Errorf("%d jobs have %d slots open when all is acknowledged", len(d.tasks), d.open)
			}
		})
	}
}

// A peer that was faster has said already what is stored: there may be no other word
// in time.
func TestWhatAPeerHasAnnouncedAlreadyIsNotHeld(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	names := d.apply(3, 1)
	at := epoch.Add(time.Second)
	d.say(at, names[1])
	d.due(at)
	if d.standing != 1 || len(d.sent) > 0 || d.p.Stats().StoodBy != 2 {
		t.Errorf("%d copies are held, want that of %s, which the peer could not publish", d.standing, names[1])
	}
	d.due(at.Add(time.Second))
	if d.standing != 4 {
		t.Errorf("%d copies are held, want those of the second of which nothing was said yet", d.standing)
	}
}

// Copies that go back to the board leave nothing behind that a peer would be held
// against.
func TestCopiesThatGoBackAreHeldForNobody(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	names := d.apply(2, 1)
	at := epoch.Add(time.Second)
	d.due(at)
	d.giveBack(d.board, d.board.tasks[names[0]])
	if d.standing != 1 {
		t.Fatalf("%d copies are held after one job was given back, of two", d.standing)
	}
	d.giveBack(d.board, nil)
	if d.standing != 0 || len(d.peer.standing) > 0 {
		t.Fatalf("%d copies are held in %d batches after all were given back", d.standing, len(d.peer.standing))
	}
	slots, _ := d.board.due(nil, at, maxChunk)
	if len(slots) != 2 {
		t.Errorf("%d slots are due again, want 2", len(slots))
	}
}

// A producer whose clock is less certain comes to each slot later than its peers, who
// say once that it is stored and nothing else for a second.
func TestAProducerWithALooserClockSendsNoCopies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		start := time.Now()
		loose := b.member(unaudited, func(_ *Config, v *view) { v.error = 60 * time.Millisecond })
		all := append(crowd(b, 3, 40), loose)
		b.take()
		advance(20 * time.Second)
		for id, n := range copies(b.take()) {
			if n != 1 {
				t.Errorf("%d copies of %s", n, id)
			}
		}
		b.complete(40, start, 70*time.Millisecond)
		stopAll(all)
	})
}

// What a peer said of a registry that we had not heard all of yet holds when we have.
func TestAWordIsBelievedOnceWeKnowWhatItWasSaidOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		all := crowd(b, 3, 40)
		all[0].deafen(true)
		b.apply(every("new", "@yearly", ""))
		advance(600 * time.Millisecond) // the slots of the next second are announced
		if all[0].Stats().Standing == 0 {
			t.Fatal("it holds no copies, although it does not know what was announced")
		}
		all[0].deafen(false)
		advance(50 * time.Millisecond)
		if n := all[0].Stats().Standing; n > 0 {
			t.Errorf("it still holds %d copies", n)
		}
		stopAll(all)
	})
}
