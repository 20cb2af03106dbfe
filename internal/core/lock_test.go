package core_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// locked is a job's lock with the actual state of its slots.
type locked struct {
	core.Lock
	policy job.Overlap
	places int
	ended  map[job.Slot]bool
	begun  map[job.Slot]bool
}

func slotAt(second int) job.Slot {
	return job.NewSlot("report", claimBase.Add(time.Duration(second)*time.Second))
}

func (l *locked) entrant(s job.Slot, onTime bool) core.Entrant {
	return core.Entrant{
		LockSlot: core.LockSlot{Slot: s, At: s.At, OnTime: onTime && !l.begun[s], Since: claimBase},
		Policy:   l.policy, Places: l.places,
	}
}

// enter calls Enter until it returns a verdict, and stores the new lock. When Enter asks about slots,
// enter answers from l.ended, as a worker answers from the ledger.
func (l *locked) enter(s job.Slot, onTime bool) core.Admission {
	known := map[job.Slot]bool{}
	for {
		next, place, ask := l.Enter(l.entrant(s, onTime), known)
		for _, a := range ask {
			known[a.Slot] = l.ended[a.Slot]
		}
		if len(ask) == 0 {
			l.Lock = next
			return place
		}
	}
}

func (l *locked) holders() (slots []job.Slot) {
	for _, h := range l.Holders {
		if !l.ended[h.Slot] {
			slots = append(slots, h.Slot)
		}
	}
	return slots
}

// Slots enter in any order and more than once, end, leave, and end without leaving. There are never
// more holders than places, and if a place is free, the first slot in the order can acquire it.
func TestALockNeverHasMoreHoldersThanPlaces(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &locked{
			Lock: core.Lock{Job: "report"}, ended: map[job.Slot]bool{}, begun: map[job.Slot]bool{},
			policy: rapid.SampledFrom(job.Overlaps()).Draw(t, "policy"),
			places: rapid.IntRange(1, 3).Draw(t, "places"),
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			s := slotAt(rapid.IntRange(0, 12).Draw(t, "slot"))
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0: // the slot ends, and its worker dies before it releases the lock
				if slices.Contains(l.holders(), s) {
					l.ended[s] = true
				}
			case 1: // the slot ends and leaves
				if slices.Contains(l.holders(), s) {
					l.ended[s] = true
					l.Lock, _ = l.Leave(s, l.places)
				}
			default:
				if l.ended[s] {
					continue // its record is final: no worker enters it again
				}
				before := l.holders()
				p := l.enter(s, rapid.Bool().Draw(t, "on time"))
				l.check(t, s, p, before)
			}
			if n := len(l.holders()); n > l.places {
				t.Fatalf("%d hold one of %d places: %+v", n, l.places, l.Lock)
			}
			if got := roundTrip(t, l.Lock); !got.Same(l.Lock) {
				t.Fatalf("reads %+v, wrote %+v", got, l.Lock)
			}
		}
	})
}

func (l *locked) check(t *rapid.T, s job.Slot, p core.Admission, before []job.Slot) {
	switch p.Kind {
	case core.AdmissionGranted:
		l.begun[s] = true
		if !slices.Contains(l.holders(), s) {
			t.Fatalf("%s was told it holds a place and does not: %+v", s, l.Lock)
		}
	case core.AdmissionSkipped, core.AdmissionReplaced:
		l.ended[s] = true
		if p.InWay == (job.Slot{}) || p.InWay == s {
			t.Fatalf("%s is to end for %q", s, p.InWay)
		}
	case core.AdmissionQueued:
		if !l.Has(s) {
			t.Fatalf("%s was told to wait and is not in the lock: %+v", s, l.Lock)
		}
		if len(before) < l.places && p.Ahead == 0 {
			t.Fatalf("%s waits, first of all, though %d of %d places are taken", s, len(before), l.places)
		}
	case core.AdmissionCrowded:
		t.Fatalf("%s finds a crowd of %d", s, len(l.Waiting))
	}
	if !slices.IsSortedFunc(l.Waiting, func(a, b core.LockSlot) int { return a.At.Compare(b.At) }) {
		t.Fatalf("they do not wait in order: %+v", l.Waiting)
	}
}

func roundTrip(t *rapid.T, l core.Lock) core.Lock {
	data, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	back, err := core.DecodeLock(data)
	if err != nil {
		t.Fatal(err)
	}
	return back
}

func newLocked(policy job.Overlap, places int) *locked {
	return &locked{Lock: core.Lock{Job: "report"}, policy: policy, places: places, ended: map[job.Slot]bool{}, begun: map[job.Slot]bool{}}
}

func (l *locked) want(t *testing.T, s job.Slot, onTime bool, want core.AdmissionKind) core.Admission {
	t.Helper()
	p := l.enter(s, onTime)
	if p.Kind != want {
		t.Fatalf("%s got %+v, want kind %d; lock %+v", s, p, want, l.Lock)
	}
	return p
}

func TestSkipNamesTheSlotInTheWayAndLetsLateOnesWait(t *testing.T) {
	t.Parallel()
	l := newLocked(job.OverlapSkip, 1)
	l.want(t, slotAt(0), true, core.AdmissionGranted)
	if p := l.want(t, slotAt(1), true, core.AdmissionSkipped); p.InWay != slotAt(0) {
		t.Errorf("in the way was %s", p.InWay)
	}
	l.want(t, slotAt(-5), false, core.AdmissionQueued) // a caught-up slot
	l.ended[slotAt(0)] = true                          // its worker dies before it releases the lock
	if p := l.want(t, slotAt(2), true, core.AdmissionSkipped); p.InWay != slotAt(-5) {
		t.Errorf("in the way was %s", p.InWay)
	}
	l.want(t, slotAt(-5), false, core.AdmissionGranted)
}

func TestQueueKeepsTheOrderOfTheSlotsThatHaveCome(t *testing.T) {
	t.Parallel()
	l := newLocked(job.OverlapQueue, 1)
	l.want(t, slotAt(0), true, core.AdmissionGranted)
	l.want(t, slotAt(3), true, core.AdmissionQueued)
	l.want(t, slotAt(1), true, core.AdmissionQueued)
	if p := l.want(t, slotAt(2), true, core.AdmissionQueued); p.Ahead != 1 {
		t.Errorf("%d ahead", p.Ahead)
	}
	for _, second := range []int{0, 1, 2} {
		next, woken := l.Leave(slotAt(second), 1)
		if l.Lock = next; len(woken) != 1 || woken[0].Slot != slotAt(second+1) {
			t.Fatalf("after %d: %v", second, woken)
		}
	}
	l.ended[slotAt(3)] = true
	l.want(t, slotAt(4), true, core.AdmissionGranted)
}

// If the first waiting slot has ended, for example because it was cancelled, the next one is
// admitted.
func TestAnEndedSlotKeepsNoPlaceInTheLine(t *testing.T) {
	t.Parallel()
	l := newLocked(job.OverlapQueue, 1)
	l.want(t, slotAt(0), true, core.AdmissionGranted)
	l.want(t, slotAt(1), true, core.AdmissionQueued)
	l.want(t, slotAt(2), true, core.AdmissionQueued)
	l.ended[slotAt(0)], l.ended[slotAt(1)] = true, true
	l.want(t, slotAt(2), true, core.AdmissionGranted)
}

func TestLatestRunsOnlyTheNewestWaitingSlot(t *testing.T) {
	t.Parallel()
	l := newLocked(job.OverlapLatest, 1)
	l.want(t, slotAt(0), true, core.AdmissionGranted)
	l.want(t, slotAt(1), true, core.AdmissionQueued)
	l.want(t, slotAt(3), true, core.AdmissionQueued)
	if p := l.want(t, slotAt(1), true, core.AdmissionSkipped); p.InWay != slotAt(3) {
		t.Errorf("in the way was %s", p.InWay)
	}
	l.want(t, slotAt(2), true, core.AdmissionSkipped)
	l.Lock, _ = l.Leave(slotAt(0), 1)
	l.want(t, slotAt(3), true, core.AdmissionGranted)
	l.Lock, _ = l.Leave(slotAt(3), 1)
	l.want(t, slotAt(2), true, core.AdmissionSkipped)   // a place is free, but a newer slot has run
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
	l.Lock, _ = l.Leave(slotAt(0), 2)
	l.want(t, slotAt(2), true, core.AdmissionGranted)
	l.want(t, slotAt(1), true, core.AdmissionGranted) // enters again for its retry
}

// The newer slot ended while it waited: an operator cancelled it, or its deadline passed.
func TestASlotThatHasEndedReplacesNothing(t *testing.T) {
	t.Parallel()
	l := newLocked(job.OverlapReplace, 1)
	l.want(t, slotAt(0), true, core.AdmissionGranted)
	l.want(t, slotAt(1), true, core.AdmissionQueued)
	l.ended[slotAt(1)] = true
	l.want(t, slotAt(0), true, core.AdmissionGranted) // enters again for its retry
	if l.Has(slotAt(1)) {
		t.Errorf("the lock still has it: %+v", l.Lock)
	}
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
	l.want(t, slotAt(7), false, core.AdmissionQueued)
	l.Lock, _ = l.Leave(slotAt(5), 1)
	l.want(t, slotAt(6), true, core.AdmissionGranted)
	if p := l.want(t, slotAt(8), true, core.AdmissionQueued); p.Displaces != slotAt(6) {
		t.Errorf("displaces %q, want the one that was on time", p.Displaces)
	}
	l.Lock, _ = l.Leave(slotAt(6), 1)
	l.want(t, slotAt(7), false, core.AdmissionGranted) // it is older than the waiting slot
	l.Lock, _ = l.Leave(slotAt(7), 1)
	l.want(t, slotAt(8), true, core.AdmissionGranted)
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
	l.ended[slotAt(2)] = true
	l.want(t, slotAt(1), true, core.AdmissionGranted)
}

func TestALockListsAtMostAHundredThatWait(t *testing.T) {
	t.Parallel()
	l := newLocked(job.OverlapQueue, 1)
	for second := range core.MaxLockWaiting + 1 {
		l.enter(slotAt(second+10), true)
	}
	l.want(t, slotAt(1000), true, core.AdmissionCrowded)
	l.want(t, slotAt(1), true, core.AdmissionQueued) // it is older; the newest waiting slot is dropped and must retry
	if n := len(l.Waiting); n != core.MaxLockWaiting {
		t.Errorf("%d wait", n)
	}
}
