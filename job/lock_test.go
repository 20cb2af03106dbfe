package job_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/job"
)

// locked is a job's lock and the truth about its slots.
type locked struct {
	job.Lock
	policy job.Overlap
	places int
	ended  map[job.Slot]bool
	begun  map[job.Slot]bool
}

func slotAt(second int) job.Slot {
	return job.NewSlot("report", claimBase.Add(time.Duration(second)*time.Second))
}

func (l *locked) entrant(s job.Slot, onTime bool) job.Entrant {
	return job.Entrant{
		LockSlot: job.LockSlot{Slot: s, At: s.At, OnTime: onTime && !l.begun[s], Since: claimBase},
		Policy:   l.policy, Places: l.places,
	}
}

// enter answers the lock's questions from the truth, as a worker does from the
// ledger, and stores what it says.
func (l *locked) enter(s job.Slot, onTime bool) job.Place {
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

// Slots come in any order and again, end, crash before they leave, and leave
// twice; never do more hold a place than there are, and somebody always can.
func TestALockNeverHasMoreHoldersThanPlaces(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &locked{
			Lock: job.Lock{Job: "report"}, ended: map[job.Slot]bool{}, begun: map[job.Slot]bool{},
			policy: rapid.SampledFrom([]job.Overlap{job.OverlapSkip, job.OverlapQueue, job.OverlapLatest, job.OverlapReplace, job.OverlapAllow}).Draw(t, "policy"),
			places: rapid.IntRange(1, 3).Draw(t, "places"),
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			s := slotAt(rapid.IntRange(0, 12).Draw(t, "slot"))
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0: // it ends, and its worker dies before it leaves
				if slices.Contains(l.holders(), s) {
					l.ended[s] = true
				}
			case 1: // it ends and leaves
				if slices.Contains(l.holders(), s) {
					l.ended[s] = true
					l.Lock, _ = l.Leave(s, l.places)
				}
			default:
				if l.ended[s] {
					continue // its record is final: nobody asks for it
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

func (l *locked) check(t *rapid.T, s job.Slot, p job.Place, before []job.Slot) {
	switch p.Kind {
	case job.PlaceHeld:
		l.begun[s] = true
		if !slices.Contains(l.holders(), s) {
			t.Fatalf("%s was told it holds a place and does not: %+v", s, l.Lock)
		}
	case job.PlaceBarred, job.PlaceDisplaced:
		l.ended[s] = true
		if p.InWay == (job.Slot{}) || p.InWay == s {
			t.Fatalf("%s is to end for %q", s, p.InWay)
		}
	case job.PlaceWaits:
		if !l.Has(s) {
			t.Fatalf("%s was told to wait and is not in the lock: %+v", s, l.Lock)
		}
		if len(before) < l.places && p.Ahead == 0 {
			t.Fatalf("%s waits, first of all, though %d of %d places are taken", s, len(before), l.places)
		}
	case job.PlaceCrowded:
		t.Fatalf("%s finds a crowd of %d", s, len(l.Waiting))
	}
	if !slices.IsSortedFunc(l.Waiting, func(a, b job.LockSlot) int { return a.At.Compare(b.At) }) {
		t.Fatalf("they do not wait in order: %+v", l.Waiting)
	}
}

func roundTrip(t *rapid.T, l job.Lock) job.Lock {
	data, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	back, err := job.DecodeLock(data)
	if err != nil {
		t.Fatal(err)
	}
	return back
}

func newLocked(policy job.Overlap, places int) *locked {
	return &locked{Lock: job.Lock{Job: "report"}, policy: policy, places: places, ended: map[job.Slot]bool{}, begun: map[job.Slot]bool{}}
}

func (l *locked) want(t *testing.T, s job.Slot, onTime bool, want job.PlaceKind) job.Place {
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
	l.want(t, slotAt(0), true, job.PlaceHeld)
	if p := l.want(t, slotAt(1), true, job.PlaceBarred); p.InWay != slotAt(0) {
		t.Errorf("in the way was %s", p.InWay)
	}
	l.want(t, slotAt(-5), false, job.PlaceWaits) // caught up
	l.ended[slotAt(0)] = true                    // its worker dies before it leaves
	if p := l.want(t, slotAt(2), true, job.PlaceBarred); p.InWay != slotAt(-5) {
		t.Errorf("in the way was %s", p.InWay)
	}
	l.want(t, slotAt(-5), false, job.PlaceHeld)
}

func TestQueueKeepsTheOrderOfTheSlotsThatHaveCome(t *testing.T) {
	t.Parallel()
	l := newLocked(job.OverlapQueue, 1)
	l.want(t, slotAt(0), true, job.PlaceHeld)
	l.want(t, slotAt(3), true, job.PlaceWaits)
	l.want(t, slotAt(1), true, job.PlaceWaits)
	if p := l.want(t, slotAt(2), true, job.PlaceWaits); p.Ahead != 1 {
		t.Errorf("%d ahead", p.Ahead)
	}
	for _, second := range []int{0, 1, 2} {
		next, woken := l.Leave(slotAt(second), 1)
		if l.Lock = next; len(woken) != 1 || woken[0] != slotAt(second+1) {
			t.Fatalf("after %d: %v", second, woken)
		}
	}
	l.ended[slotAt(3)] = true
	l.want(t, slotAt(4), true, job.PlaceHeld)
}

// The first in the line was cancelled, or ended elsewhere: the next gets past it.
func TestAnEndedSlotKeepsNoPlaceInTheLine(t *testing.T) {
	t.Parallel()
	l := newLocked(job.OverlapQueue, 1)
	l.want(t, slotAt(0), true, job.PlaceHeld)
	l.want(t, slotAt(1), true, job.PlaceWaits)
	l.want(t, slotAt(2), true, job.PlaceWaits)
	l.ended[slotAt(0)], l.ended[slotAt(1)] = true, true
	l.want(t, slotAt(2), true, job.PlaceHeld)
}

func TestOfTheSlotsThatWaitLatestLetsOnlyTheNewestRun(t *testing.T) {
	t.Parallel()
	l := newLocked(job.OverlapLatest, 1)
	l.want(t, slotAt(0), true, job.PlaceHeld)
	l.want(t, slotAt(1), true, job.PlaceWaits)
	l.want(t, slotAt(3), true, job.PlaceWaits)
	if p := l.want(t, slotAt(1), true, job.PlaceBarred); p.InWay != slotAt(3) {
		t.Errorf("in the way was %s", p.InWay)
	}
	l.want(t, slotAt(2), true, job.PlaceBarred)
	l.Lock, _ = l.Leave(slotAt(0), 1)
	l.want(t, slotAt(3), true, job.PlaceHeld)
	l.Lock, _ = l.Leave(slotAt(3), 1)
	l.want(t, slotAt(2), true, job.PlaceBarred) // the lock is free, but it is too late
	l.want(t, slotAt(-9), false, job.PlaceHeld) // backfilled: it is not about being new
}

func TestReplaceEndsTheOldestAndThenRuns(t *testing.T) {
	t.Parallel()
	l := newLocked(job.OverlapReplace, 2)
	l.want(t, slotAt(0), true, job.PlaceHeld)
	l.want(t, slotAt(1), true, job.PlaceHeld)
	if p := l.want(t, slotAt(2), true, job.PlaceWaits); p.Displaces != slotAt(0) {
		t.Errorf("displaces %s", p.Displaces)
	}
	l.begun[slotAt(0)] = true // its owner died: whoever takes it over sees that it is to end
	if p := l.want(t, slotAt(0), true, job.PlaceDisplaced); p.InWay != slotAt(2) {
		t.Errorf("displaced by %s", p.InWay)
	}
	l.Lock, _ = l.Leave(slotAt(0), 2)
	l.want(t, slotAt(2), true, job.PlaceHeld)
	l.want(t, slotAt(1), true, job.PlaceHeld) // asks again at its retry
}

// An operator cancelled it while it waited, or its deadline passed.
func TestASlotThatHasEndedReplacesNothing(t *testing.T) {
	t.Parallel()
	l := newLocked(job.OverlapReplace, 1)
	l.want(t, slotAt(0), true, job.PlaceHeld)
	l.want(t, slotAt(1), true, job.PlaceWaits)
	l.ended[slotAt(1)] = true
	l.want(t, slotAt(0), true, job.PlaceHeld) // asks again at its retry
	if l.Has(slotAt(1)) {
		t.Errorf("the lock still has it: %+v", l.Lock)
	}
}

// Of a job that is due every few seconds a run that somebody asked for, or that
// catches up, would never come to its end.
func TestReplaceEndsNoRunThatWasNotOnTime(t *testing.T) {
	t.Parallel()
	l := newLocked(job.OverlapReplace, 1)
	l.want(t, slotAt(5), false, job.PlaceHeld) // triggered
	for _, second := range []int{4, 6} {
		if p := l.want(t, slotAt(second), true, job.PlaceWaits); p.Displaces != (job.Slot{}) {
			t.Errorf("displaces %s", p.Displaces)
		}
	}
	l.want(t, slotAt(5), false, job.PlaceHeld) // asks again at its retry
	l.want(t, slotAt(7), false, job.PlaceWaits)
	l.Lock, _ = l.Leave(slotAt(5), 1)
	l.want(t, slotAt(6), true, job.PlaceHeld)
	if p := l.want(t, slotAt(8), true, job.PlaceWaits); p.Displaces != slotAt(6) {
		t.Errorf("displaces %q, want the one that was on time", p.Displaces)
	}
	l.Lock, _ = l.Leave(slotAt(6), 1)
	l.want(t, slotAt(7), false, job.PlaceHeld) // it came before
	l.Lock, _ = l.Leave(slotAt(7), 1)
	l.want(t, slotAt(8), true, job.PlaceHeld)
}

func TestASlotOfADeletedJobWaitsForThoseInTheLockOnly(t *testing.T) {
	t.Parallel()
	l := newLocked(job.OverlapQueue, 0)
	l.begun[slotAt(0)], l.begun[slotAt(1)] = true, true
	l.want(t, slotAt(0), true, job.PlaceHeld)
	l.want(t, slotAt(1), true, job.PlaceHeld) // as under allow
	if len(l.Holders) > 0 {
		t.Errorf("they take places: %+v", l.Lock)
	}
	l.Holders = []job.LockSlot{{Slot: slotAt(2), At: slotAt(2).At}}
	l.want(t, slotAt(2), true, job.PlaceHeld)
	l.want(t, slotAt(1), true, job.PlaceWaits)
	l.ended[slotAt(2)] = true
	l.want(t, slotAt(1), true, job.PlaceHeld)
}

func TestALockListsAtMostAHundredThatWait(t *testing.T) {
	t.Parallel()
	l := newLocked(job.OverlapQueue, 1)
	for second := range job.MaxLockWaiting + 1 {
		l.enter(slotAt(second+10), true)
	}
	l.want(t, slotAt(1000), true, job.PlaceCrowded)
	l.want(t, slotAt(1), true, job.PlaceWaits) // it comes before them: the last one is to come back
	if n := len(l.Waiting); n != job.MaxLockWaiting {
		t.Errorf("%d wait", n)
	}
}
