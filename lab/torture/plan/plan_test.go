package plan

import (
	"cmp"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/job"
)

func drawShape(t *rapid.T) Shape {
	lease := rapid.IntRange(2, 30).Draw(t, "lease")
	return Shape{
		Seed: rapid.Uint64().Draw(t, "seed"), Duration: time.Duration(rapid.IntRange(2*lease+10, 900).Draw(t, "seconds")) * time.Second,
		Lease:   time.Duration(lease) * time.Second,
		Workers: rapid.IntRange(2, 8).Draw(t, "workers"), Producers: rapid.IntRange(0, 3).Draw(t, "producers"),
		Servers: rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "servers"),
	}
}

func TestEveryOverlapPolicyHasACase(t *testing.T) {
	t.Parallel()
	for _, policy := range job.Overlaps() {
		if !slices.ContainsFunc(Cases(time.Second), func(c Case) bool { return c.Job.Overlap == policy }) {
			t.Errorf("no case has overlap: %s", policy)
		}
	}
}

func TestTheSameSeedPlansTheSameFaults(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t)
		if a, b := NewPlan(s), NewPlan(s); !reflect.DeepEqual(a, b) {
			t.Fatalf("two plans of %+v differ", s)
		}
	})
}

func TestOtherSeedsPlanOtherFaults(t *testing.T) {
	t.Parallel()
	s := Shape{Seed: 1, Duration: time.Minute, Lease: 3 * time.Second, Workers: 4, Producers: 2, Servers: 1}
	other := s
	other.Seed = 2
	if reflect.DeepEqual(NewPlan(s), NewPlan(other)) {
		t.Error("seeds 1 and 2 plan the same")
	}
}

// The faults of one lane follow each other, end before the run does, and have targets that exist.
// So at most one server is down at any time. One worker sleeps for longer than its lease, because
// otherwise the run would be inconclusive.
func TestAPlanCanBeCarriedOut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t)
		sleeps := 0
		for i, lane := range NewPlan(s).Lanes {
			end := time.Duration(0)
			for _, f := range lane {
				if f.At < end || f.For < 0 {
					t.Fatalf("lane %d: %+v begins before %v", i, f, end)
				}
				end = f.At + f.For
				if end > s.Duration {
					t.Fatalf("lane %d: %+v ends after %v", i, f, s.Duration)
				}
				switch {
				case f.Kind == Broker && (f.Target >= s.Servers || i != s.Workers+s.Producers):
					t.Fatalf("lane %d: %+v: there are %d servers", i, f, s.Servers)
				case f.Kind == Full:
					if i != len(NewPlan(s).Lanes)-1 {
						t.Fatalf("lane %d: %+v is of no process", i, f)
					}
				case f.Kind != Broker && f.Target != i:
					t.Fatalf("lane %d: %+v is of another process", i, f)
				case f.Kind == Sleep && f.Target >= s.Workers:
					t.Fatalf("lane %d: %+v is of no worker", i, f)
				case f.Kind == Sleep && f.For > s.Lease:
					sleeps++
				}
			}
		}
		if sleeps == 0 {
			t.Fatalf("no worker sleeps through a lease of %v in %v", s.Lease, s.Duration)
		}
	})
}

func TestAPlanLeavesAProducerCalmForLongEnough(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t)
		s.Duration = max(s.Duration, 5*Settled(s.Lease), silenceFrom)
		s.Producers = max(s.Producers, 1)
		lanes := NewPlan(s).Lanes
		var hit []Fault // the last process, the servers, the streams
		for _, lane := range lanes[s.Workers+s.Producers-1:] {
			hit = append(hit, lane...)
		}
		slices.SortFunc(hit, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
		end, longest := time.Duration(0), time.Duration(0)
		for _, f := range hit {
			longest = max(longest, f.At-end)
			end = max(end, f.At+f.For)
		}
		if longest < Settled(s.Lease)+Promptly {
			t.Fatalf("no producer has nothing wrong with it for more than %v", longest)
		}
	})
}

func TestAPlanHasAProducerLeaveWhileTheOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t)
		s.Duration = max(s.Duration, 5*Settled(s.Lease), silenceFrom)
		s.Producers = max(s.Producers, 2)
		p := NewPlan(s)
		all := slices.Concat(p.Lanes...)
		i := slices.IndexFunc(all, func(f Fault) bool { return f.Kind == Leave })
		if i < 0 {
			t.Fatal("no producer leaves")
		}
		leave := all[i]
		for lane, faults := range p.Lanes[:s.Workers+s.Producers] {
			for _, f := range faults {
				if s.Publishes(lane) && f != leave && f != p.Lanes[0][0] && f.At < leave.At+leave.For && f.At+f.For > leave.At {
					t.Fatalf("lane %d: %+v is beside %+v", lane, f, leave)
				}
			}
		}
	})
}

func TestNotEveryPublisherRefusesItsClock(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t)
		i, life := rapid.IntRange(1, s.Workers+s.Producers-1).Draw(t, "process"), rapid.IntRange(1, 100).Draw(t, "life")
		if by := s.Offset(i, life); by.Abs() >= time.Hour {
			t.Fatalf("the clock of process %d is off by %v", i, by)
		}
	})
}
