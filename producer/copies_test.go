package producer

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// desk is an outbox with its agenda and one older peer, whose announcements the test makes.
type desk struct {
	*outbox
	t     *testing.T
	peer  *peer
	sent  []core.Message
	reply []func(duplicate bool, err error)
}

func newDesk(t *testing.T) *desk {
	d := &desk{t: t}
	agenda := testAgenda(position{time: epoch})
	p, err := New(Config{Node: "self", Registry: brokenRegistry{}, Watermark: &view{}, Slots: d, Clock: &view{}, Started: epoch})
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(p.cfg)
	f.receive(exchange.Announcement{Node: "peer", Kind: exchange.AnnounceHere}, time.Now())
	d.outbox, d.peer = newOutbox(p, f, agenda), f.peers["peer"]
	d.review()
	return d
}

func (d *desk) Connected() bool { return true }

func (d *desk) Send(_ string, m core.Message, _ []byte, answered func(bool, error)) error {
	d.sent, d.reply = append(d.sent, m), append(d.reply, answered)
	return nil
}

// acknowledge answers everything that was sent.
func (d *desk) acknowledge() {
	for _, answer := range d.reply {
		answer(false, nil)
	}
	d.reply = nil
	d.takeAnswers()
}

func (d *desk) review() { d.fleet.update(time.Now(), true, d.agenda.digest) }

// say makes the peer announce, with the members and the registry of this producer.
func (d *desk) say(until time.Time, except ...string) {
	d.fleet.receive(exchange.Announcement{
		Node: "peer", Kind: exchange.AnnounceHere, Time: until, Except: except, Members: d.fleet.members, Registry: d.fleet.registry,
	}, time.Now())
	d.dropAnnounced(d.peer)
}

// apply puts n jobs of the peer's share on the agenda, one slot a second each, and returns
// their names.
func (d *desk) apply(n int, revision uint64) (names []string) {
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprint("job", i); d.fleet.owner(name) == d.peer {
			names = append(names, name)
			e := plans.Entry{Revision: revision + uint64(i), Time: epoch}
			e.Job = job.Job{Name: name, Schedule: "* * * * * *"}
			d.agenda.apply(plans.RegistryEvent{Name: name, Revision: e.Revision, Entry: e}, epoch)
		}
	}
	d.review()
	return names
}

// due moves due slots from the agenda to the outbox.
func (d *desk) due(now time.Time) {
	slots, done := d.agenda.due(nil, now, maxChunk)
	if !done {
		d.t.Fatal("more is due than a test needs")
	}
	d.add(slots, now)
	d.mark(d.agenda.position(now))
}

// Marks that were made before and after a copy was taken over wait for it.
func TestMarkWaitsForCopiesThatWereTakenOver(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.apply(3, 1)
	first, second := epoch.Add(time.Second), epoch.Add(2*time.Second)
	d.due(first)
	d.due(second)
	if len(d.sent) > 0 || d.standby != 6 {
		t.Fatalf("%d sent and %d kept of six copies", len(d.sent), d.standby)
	}
	d.takeOverUntil(d.peer, time.Now())
	if len(d.sent) != 6 || d.standby != 0 || d.unacked != 6 {
		t.Fatalf("%d sent, %d kept, %d unacknowledged after the peer fell silent", len(d.sent), d.standby, d.unacked)
	}
	offers := func(when string, want time.Time) {
		t.Helper()
		if pos, ok := d.advance(); ok != !want.IsZero() || ok && !pos.time.Equal(want) {
			t.Errorf("%s: %v, %v may be offered, want %v", when, pos.time, ok, want)
		}
		if until, _, _ := d.announceable(); !until.Equal(want) {
			t.Errorf("%s: the share is announced up to %v, want %v", when, until, want)
		}
	}
	offers("nothing is acknowledged", time.Time{})
	for _, answer := range d.reply[:3] {
		answer(false, nil)
	}
	d.reply = d.reply[3:]
	d.takeAnswers()
	offers("the first second is acknowledged", first)
	d.acknowledge()
	offers("all is acknowledged", second)
}

// An announcement with a newer registry says nothing about a slot of a plan that the peer
// may never have known.
func TestCopyOfAnEarlierDefinitionIsKept(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	names := d.apply(2, 1)
	at := epoch.Add(time.Second)
	d.due(at)
	e := plans.Entry{Revision: 1000, Time: at}
	e.Job = job.Job{Name: names[0], Schedule: "@yearly"}
	d.agenda.apply(plans.RegistryEvent{Name: names[0], Revision: e.Revision, Entry: e}, at)
	d.review()
	d.say(at)
	if d.standby != 1 || len(d.sent) > 0 {
		t.Fatalf("%d copies are held and %d sent, want that of the edited job to be kept", d.standby, len(d.sent))
	}
	d.takeOverUntil(d.peer, time.Now())
	if len(d.sent) != 1 || d.sent[0].Slot.Job != names[0] || d.sent[0].JobRevision == 1000 {
		t.Errorf("published %+v, want the slot of the earlier plan of %s", d.sent, names[0])
	}
}

// A range is published after all other late slots of its job, those of the peer's share
// included.
func TestARangeWaitsForTheLateCopies(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*desk, time.Time){
		"the peer publishes them": func(d *desk, now time.Time) { d.say(now) },
		"we do": func(d *desk, now time.Time) {
			d.takeOverUntil(d.peer, time.Now())
			if n := len(d.sent); n != 1 {
				d.t.Errorf("%d sent before any of them was acknowledged, want the one that runs", n)
			}
			d.acknowledge()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.apply(1, 1)
			now := epoch.Add(time.Hour)
			slots, _ := d.agenda.due(nil, now, maxChunk)
			slots = slices.DeleteFunc(slots, func(s dueSlot) bool { return !s.isLate() })
			d.add(slots, now)
			if len(d.sent) > 0 || d.standby != 2 {
				t.Fatalf("%d sent and %d kept of %d", len(d.sent), d.standby, len(slots))
			}
			end(d, now)
			if n := len(d.sent); (n == 2 && d.sent[1].Slot.Range) != (name == "we do") {
				t.Fatalf("published: %v", d.sent)
			}
			d.acknowledge()
			if len(d.backlogs) > 0 || d.unacked != 0 {
				t.Errorf("%d jobs have %d slots open when all is acknowledged", len(d.backlogs), d.unacked)
			}
		})
	}
}

// A faster peer has already announced the slot, and may announce nothing else in time.
func TestCopyOfAnAnnouncedSlotIsDropped(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	names := d.apply(3, 1)
	at := epoch.Add(time.Second)
	d.say(at, names[1])
	d.due(at)
	if d.standby != 1 || len(d.sent) > 0 || d.p.Stats().StoodBy != 2 {
		t.Errorf("%d copies are kept, want that of %s, which the peer could not publish", d.standby, names[1])
	}
	d.due(at.Add(time.Second))
	if d.standby != 4 {
		t.Errorf("%d copies are kept, want those of the second of which nothing was said yet", d.standby)
	}
}

// Copies that return to the agenda leave no batch behind for which the peer could be judged
// silent.
func TestCopiesThatReturnToTheAgendaLeaveNoBatch(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	names := d.apply(2, 1)
	at := epoch.Add(time.Second)
	d.due(at)
	d.returnToAgenda(d.agenda.jobs[names[0]])
	if d.standby != 1 {
		t.Fatalf("%d copies are kept after one job of two returned", d.standby)
	}
	d.returnToAgenda(nil)
	if d.standby != 0 || len(d.peer.standby) > 0 {
		t.Fatalf("%d copies are kept in %d batches after all returned", d.standby, len(d.peer.standby))
	}
	slots, _ := d.agenda.due(nil, at, maxChunk)
	if len(slots) != 2 {
		t.Errorf("%d slots are due again, want 2", len(slots))
	}
}

// A producer whose clock is less certain reaches each slot later than its peers. They
// announce once that it is stored, and then nothing for a second.
func TestProducerWithALessCertainClockSendsNoCopies(t *testing.T) {
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

// A peer's announcement for a registry that is not fully known here yet counts as soon as
// it is.
func TestAnnouncementCountsOnceItsRegistryIsKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		all := crowd(b, 3, 40)
		all[0].deafen(true)
		b.apply(every("new", "@yearly", ""))
		advance(600 * time.Millisecond) // the slots of the next second are announced
		if all[0].Stats().Standby == 0 {
			t.Fatal("it holds no copies, although it does not know what was announced")
		}
		all[0].deafen(false)
		advance(50 * time.Millisecond)
		if n := all[0].Stats().Standby; n > 0 {
			t.Errorf("it still holds %d copies", n)
		}
		stopAll(all)
	})
}
