package core_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// locked is a job's lock with the actual state of its slots.
type locked struct {
	core.Lock
	policy       job.Overlap
	places       int
	ended, begun map[job.Slot]bool
}

func newLocked(policy job.Overlap, places int) *locked {
	return &locked{Lock: core.Lock{Job: "report"}, policy: policy, places: places, ended: map[job.Slot]bool{}, begun: map[job.Slot]bool{}}
}

func slotAt(second int) job.Slot {
	return job.NewSlot("report", claimBase.Add(time.Duration(second)*time.Second))
}

// enter stores the lock that Enter returns.
func (l *locked) enter(s job.Slot, onTime bool) (p core.Admission) {
	l.Lock, p = l.Enter(core.Entrant{
		LockSlot: core.LockSlot{Slot: s, At: s.At, OnTime: onTime && !l.begun[s], Since: claimBase, Node: "A"},
		Policy:   l.policy, Places: l.places, Fresh: !l.begun[s],
	})
	return p
}

func (l *locked) leave(s job.Slot) { l.Lock = l.Leave(s, "A") }

func (l *locked) want(t *testing.T, s job.Slot, onTime bool, want core.AdmissionKind) core.Admission {
	t.Helper()
	p := l.enter(s, onTime)
	if p.Kind != want {
		t.Fatalf("%s got %+v, want kind %d; lock %+v", s, p, want, l.Lock)
	}
	return p
}

// Slots enter in any order and more than once, are called from the line, and leave. There are never more
// holders than places. A slot that is refused is refused because of another one. A slot waits only if no place
// is free, or others wait.
func TestALockNeverHasMoreHoldersThanPlaces(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := newLocked(rapid.SampledFrom(job.Overlaps()).Draw(t, "policy"), rapid.IntRange(1, 3).Draw(t, "places"))
		line := map[job.Slot]core.Entry{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			s := slotAt(rapid.IntRange(0, 12).Draw(t, "slot"))
			e, stands := line[s]
			switch {
			case l.Holds(s) && rapid.Bool().Draw(t, "ends"):
				l.leave(s)
				l.ended[s] = true
			case stands && len(l.Holders) < l.places:
				l.Lock = l.Call(e, claimBase)
				delete(line, s)
			case !stands && !l.ended[s]:
				before := len(l.Holders)
				switch p := l.enter(s, rapid.Bool().Draw(t, "on time")); {
				case p.Kind == core.AdmissionGranted && !l.Holds(s):
					t.Fatalf("%s was admitted and holds no place: %+v", s, l.Lock)
				case p.Kind == core.AdmissionQueued && before < l.places && !l.Waiting:
					t.Fatalf("%s waits, although %d of %d places are taken and no slot waits", s, before, l.places)
				case p.Kind == core.AdmissionQueued:
					line[s] = core.Entry{Slot: s, At: s.At, Sequence: uint64(len(line) + 1)}
					l.Lock = l.Stood(line[s].Sequence)
				case p.Kind != core.AdmissionGranted && (p.InWay == (job.Slot{}) || p.InWay == s):
					t.Fatalf("%s is to end for %q", s, p.InWay)
				case p.Kind != core.AdmissionGranted:
					l.ended[s] = true
					l.leave(s)
				}
			}
			if n := len(l.Holders); n > l.places {
				t.Fatalf("%d hold one of %d places: %+v", n, l.places, l.Lock)
			}
			data, err := json.Marshal(l.Lock)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := core.DecodeLock(data); err != nil || !got.Same(l.Lock) {
				t.Fatalf("reads %+v, %v; wrote %+v", got, err, l.Lock)
			}
		}
	})
}

func TestSkipNamesTheSlotInTheWayAndLetsLateOnesWait(t *testing.T) {
	t.Parallel()
	l := newLocked(job.OverlapSkip, 1)
	l.want(t, slotAt(5), true, core.AdmissionGranted)
	if p := l.want(t, slotAt(6), true, core.AdmissionSkipped); p.InWay != slotAt(5) {
		t.Errorf("in the way was %s", p.InWay)
	}
	l.want(t, slotAt(-5), false, core.AdmissionQueued) // a caught-up slot
	l.want(t, slotAt(4), true, core.AdmissionQueued)   // a newer slot was faster: this one waits for its turn
}

func TestASlotDoesNotOvertakeThoseThatWait(t *testing.T) {
	t.Parallel()
	l := newLocked(job.OverlapQueue, 2)
	l.want(t, slotAt(0), true, core.AdmissionGranted)
	l.Lock = l.Stood(7)
	l.want(t, slotAt(1), true, core.AdmissionQueued) // although a place is free
	l.Waiting = false
	l.want(t, slotAt(1), true, core.AdmissionGranted)
}

// Two workers put slots into the line at the same time. The one with the later entry may look at the lock
// first.
func TestTheLineBeginsAtTheFirstEntryWhoeverLooksFirst(t *testing.T) {
	t.Parallel()
	l := core.Lock{Job: "report", Line: 9}.Stood(8).Stood(7).Stood(12)
	if !l.Waiting || l.Line != 7 {
		t.Errorf("the lock is %+v, want it to wait from 7 on", l)
	}
}

func TestEntriesTakeTheirTurnsByInstant(t *testing.T) {
	t.Parallel()
	var all []core.Entry
	for i, second := range []int{3, 1, 2} {
		all = append(all, core.Entry{Slot: slotAt(second), At: slotAt(second).At, Sequence: uint64(i + 1)})
	}
	core.SortEntries(all)
	for i, e := range all {
		if e.Slot != slotAt(i+1) {
			t.Errorf("number %d is %s", i+1, e.Slot)
		}
	}
}

func TestLatestRefusesASlotThatIsOlderThanTheNewest(t *testing.T) {
	t.Parallel()
	l := newLocked(job.OverlapLatest, 1)
	l.want(t, slotAt(0), true, core.AdmissionGranted)
	l.want(t, slotAt(3), true, core.AdmissionQueued)
	if p := l.want(t, slotAt(1), true, core.AdmissionSkipped); p.InWay != slotAt(3) {
		t.Errorf("in the way was %s", p.InWay)
	}
	for second, want := range map[int]bool{2: true, 3: false} {
		if got := l.Displaced(core.Entry{At: slotAt(second).At, OnTime: true}, l.policy); got != want {
			t.Errorf("slot %d in the line is displaced: %t", second, got)
		}
	}
	if l.Displaced(core.Entry{At: slotAt(2).At}, l.policy) {
		t.Error("a slot that was not on time is displaced")
	}
	l.leave(slotAt(0))
	l.want(t, slotAt(2), true, core.AdmissionSkipped)   // a place is free, but a newer slot has come
	l.want(t, slotAt(-9), false, core.AdmissionGranted) // a backfilled slot runs however old it is
}

func TestReplaceEndsTheOldestAndThenRuns(t *testing.T) {
	t.Parallel()
	l := newLocked(job.OverlapReplace, 2)
	l.want(t, slotAt(0), true, core.AdmissionGranted)
	l.want(t, slotAt(1), true, core.AdmissionGranted)
	if p := l.want(t, slotAt(2), true, core.AdmissionQueued); p.Displaces != slotAt(0) {
		t.Errorf("displaces %s", p.Displaces)
	}
	l.begun[slotAt(0)] = true // its owner died; the worker that takes it over must end it
	if p := l.want(t, slotAt(0), true, core.AdmissionReplaced); p.InWay != slotAt(2) {
		t.Errorf("displaced by %s", p.InWay)
	}
	l.leave(slotAt(0))
	l.want(t, slotAt(2), true, core.AdmissionGranted)
}

// If a job is due every few seconds and newer slots replaced its triggered and caught-up runs, these
// runs could never complete.
func TestReplaceEndsNoRunThatWasNotOnTime(t *testing.T) {
	t.Parallel()
	l := newLocked(job.OverlapReplace, 1)
	l.want(t, slotAt(5), false, core.AdmissionGranted) // a triggered run
	for _, second := range []int{4, 6} {
		if p := l.want(t, slotAt(second), true, core.AdmissionQueued); p.Displaces != (job.Slot{}) {
			t.Errorf("displaces %s", p.Displaces)
		}
	}
	l.want(t, slotAt(5), false, core.AdmissionGranted) // enters again for its retry
	l.leave(slotAt(5))
	l.want(t, slotAt(6), true, core.AdmissionGranted)
	if p := l.want(t, slotAt(8), true, core.AdmissionQueued); p.Displaces != slotAt(6) {
		t.Errorf("displaces %q, want the one that was on time", p.Displaces)
	}
}

func TestASlotOfADeletedJobWaitsForThoseInTheLockOnly(t *testing.T) {
	t.Parallel()
	l := newLocked(job.OverlapQueue, 0)
	l.begun[slotAt(0)], l.begun[slotAt(1)] = true, true
	l.want(t, slotAt(0), true, core.AdmissionGranted)
	l.want(t, slotAt(1), true, core.AdmissionGranted) // as under OverlapAllow
	if len(l.Holders) > 0 {
		t.Errorf("they take places: %+v", l.Lock)
	}
	l.Holders = []core.LockSlot{{Slot: slotAt(2), At: slotAt(2).At}}
	l.want(t, slotAt(2), true, core.AdmissionGranted)
	l.want(t, slotAt(1), true, core.AdmissionQueued)
}

// The worker of the slot has written its outcome. Before it leaves the lock, an operator reopens the slot, and
// another worker begins it anew.
func TestAPlaceBelongsToTheNodeThatWorksOnItsSlot(t *testing.T) {
	t.Parallel()
	s := slotAt(0)
	by := func(node string, fresh bool) core.Entrant {
		return core.Entrant{LockSlot: core.LockSlot{Slot: s, At: s.At, Since: claimBase, Node: node}, Policy: job.OverlapQueue, Places: 1, Fresh: fresh}
	}
	entered, _ := core.Lock{Job: "report"}.Enter(by("A", true))
	reopened, _ := entered.Enter(by("B", false))
	if reopened.Same(entered) {
		t.Error("the second stay did not change the lock, so a write that names its revision is not refused")
	}
	if left := reopened.Leave(s, "A"); !left.Holds(s) {
		t.Error("the first worker ended the second stay")
	}
	if left := reopened.Leave(s, "B"); left.Holds(s) {
		t.Error("the second worker could not leave")
	}
	called := core.Lock{Job: "report"}.Call(core.Entry{Slot: s, At: s.At}, claimBase)
	if begun, _ := called.Enter(by("A", true)); !begun.Same(called) {
		t.Error("a slot that was called costs its lock a write when it begins")
	}
	if begun, _ := called.Enter(by("A", false)); begun.Same(called) {
		t.Error("a slot that was called, ended and reopened begins the same stay")
	}
	if left := called.Leave(s, "A"); left.Holds(s) {
		t.Error("a slot that was called could not leave")
	}
}

func TestEntriesAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	e := core.Entry{Slot: slotAt(1), At: slotAt(1).At, OnTime: true}
	data, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := core.DecodeEntry("report", data); err != nil || got != e {
		t.Errorf("read %+v, %v; wrote %+v", got, err, e)
	}
	if _, err := core.DecodeEntry("other", data); !errors.Is(err, job.ErrInvalid) {
		t.Errorf("an entry in the line of another job: %v", err)
	}
}
