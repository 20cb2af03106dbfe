package plan

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// Case is one job of the torture: a policy, what its handler does, and which outcomes its
// slots may have.
type Case struct {
	Job job.Job

	// Every is the job's period, in whole seconds. The slots are at its multiples since 1970. Method
	// Slots computes them, without the code under test.
	Every time.Duration

	// Act draws what an attempt does.
	Act func(r *rand.Rand, attempt int) Act

	// Outcomes are the outcomes that the slots may have.
	Outcomes []job.State

	// Triggered says that the job has no schedule. Every process that runs this program triggers it
	// once in each period, all with the same keys.
	Triggered bool
}

// AtMost returns how many slots of the job may run at once. Zero: there is no limit.
func (c Case) AtMost() int {
	if !c.Job.Guarded() {
		return 0
	}
	return c.Job.Places()
}

// Act is what one attempt of a handler does: it works for the time Work, or until its context
// ends, and returns a result.
type Act struct {
	Work   time.Duration
	Result string

	// Words is how many bytes the attempt writes to its output, and how many it adds to its error.
	Words int
}

// Results of a handler.
const (
	ResultOK        = "ok"
	ResultError     = "error"
	ResultPermanent = "permanent"
	ResultLater     = "later" // job.RetryAfter
	ResultPanic     = "panic"
	ResultDie       = "die" // the handler ends its own process
)

// JobOwner is the owner of the jobs in the registry and in the files of the processes.
const JobOwner = "code"

const (
	// ample is a number of attempts that no faults can use up.
	ample = 1000

	soon = 200 * time.Millisecond // the backoff of most jobs
)

// Bounded returns the table of jobs with all slots between from (inclusive) and until (exclusive).
// So it is known exactly which slots must exist. Jobs without a slot in that time are left out.
func Bounded(lease time.Duration, from, until time.Time) []Case {
	cases := slices.DeleteFunc(Cases(lease), func(c Case) bool { return !c.Triggered && len(c.Slots(from, until)) == 0 })
	for i := range cases {
		if j := &cases[i].Job; !cases[i].Triggered {
			j.From, j.Until = from, until
		}
	}
	return cases
}

// CaseNames returns the names of the jobs.
func CaseNames(cases []Case) []string {
	return codec.Map(cases, func(c Case) string { return c.Job.Name })
}

// Queues returns the queues of the jobs, each once.
func Queues(cases iter.Seq[Case]) []string {
	var queues []string
	for c := range cases {
		queues = append(queues, c.Job.WithDefaults().Queue)
	}
	slices.Sort(queues)
	return slices.Compact(queues)
}

// Cases returns the table of jobs. lease scales the times that must be longer or shorter
// than the lease.
func Cases(lease time.Duration) []Case {
	works := func(least, most time.Duration) func(*rand.Rand, int) Act {
		return func(r *rand.Rand, _ int) Act { return Act{Work: Between(r, least, most), Result: ResultOK} }
	}
	short := works(0, 300*time.Millisecond)
	long := works(lease/4, max(2*lease, min(4*lease, 15*time.Second))) // so long that it is taken over, often twice
	patient := job.Retry{Attempts: ample, Backoff: soon, MaxBackoff: 2 * time.Second}
	all := job.CatchUp{Policy: job.CatchUpAll}
	const slow = "slow" // a queue for long runs, so that short ones do not wait for them

	cases := []Case{
		{
			Job:   job.Job{Name: "steady", Retry: patient, CatchUp: all},
			Every: time.Second, Act: short, Outcomes: succeeds,
		}, {
			Job:   job.Job{Name: "long", Queue: slow, Retry: patient, CatchUp: all},
			Every: wholeSeconds(lease / 5), Act: long, Outcomes: succeeds,
		}, {
			Job:   job.Job{Name: "flaky", Retry: patient, CatchUp: all},
			Every: 2 * time.Second, Outcomes: succeeds,
			Act: func(r *rand.Rand, _ int) Act {
				results := []string{ResultOK, ResultOK, ResultOK, ResultError, ResultLater, ResultPanic}
				return Act{Work: Between(r, 0, 200*time.Millisecond), Result: results[r.IntN(len(results))]}
			},
		}, {
			Job:   job.Job{Name: "once", Queue: slow, Retry: job.Retry{Attempts: 1}, CatchUp: all},
			Every: 2 * time.Second, Outcomes: []job.State{job.Succeeded, job.Failed},
			Act: works(0, lease),
		}, {
			Job:   job.Job{Name: "thrice", Retry: job.Retry{Attempts: 3, Backoff: soon}, CatchUp: all},
			Every: 3 * time.Second, Outcomes: []job.State{job.Succeeded, job.Failed},
			Act: func(r *rand.Rand, _ int) Act {
				return Act{Work: Between(r, 0, lease/2), Result: []string{ResultOK, ResultError, ResultLater}[r.IntN(3)]}
			},
		}, {
			Job:   job.Job{Name: "permanent", Retry: patient, CatchUp: all},
			Every: 5 * time.Second, Outcomes: fails,
			Act: func(r *rand.Rand, _ int) Act {
				return Act{Work: Between(r, 0, 200*time.Millisecond), Result: []string{ResultPermanent, ResultError}[r.IntN(2)]}
			},
		}, {
			Job:   job.Job{Name: "panics", Retry: job.Retry{Attempts: 2, Backoff: soon}, CatchUp: all},
			Every: 5 * time.Second, Outcomes: fails,
			Act: func(*rand.Rand, int) Act { return Act{Result: ResultPanic} },
		}, {
			Job:   job.Job{Name: "dies", Retry: job.Retry{Attempts: 2, Backoff: soon}, CatchUp: all},
			Every: 47 * time.Second, Outcomes: fails,
			Act: func(r *rand.Rand, _ int) Act { return Act{Work: Between(r, 0, time.Second), Result: ResultDie} },
		}, {
			Job:   job.Job{Name: "timeout", Timeout: time.Second, Retry: job.Retry{Attempts: 2, Backoff: soon}, CatchUp: all},
			Every: 5 * time.Second, Outcomes: fails,
			Act: func(*rand.Rand, int) Act { return Act{Work: time.Hour, Result: ResultOK} },
		}, {
			Job:   job.Job{Name: "deadline", Deadline: 2 * time.Second, Retry: patient, CatchUp: all},
			Every: 3 * time.Second, Outcomes: []job.State{job.Succeeded, job.Expired}, Act: short,
		}, {
			Job:   job.Job{Name: "newest", Retry: patient, CatchUp: job.CatchUp{Policy: job.CatchUpLatest}},
			Every: 3 * time.Second, Outcomes: []job.State{job.Succeeded, job.Missed}, Act: short,
		}, {
			Job:   job.Job{Name: "none", Retry: patient, CatchUp: job.CatchUp{Policy: job.CatchUpNone}},
			Every: 3 * time.Second, Outcomes: []job.State{job.Succeeded, job.Missed}, Act: short,
		}, {
			Job:   job.Job{Name: "cron", Schedule: "*/5 * * * * *", Timezone: "Europe/Berlin", Retry: patient, CatchUp: all},
			Every: 5 * time.Second, Act: short, Outcomes: succeeds,
		}, {
			Job:   job.Job{Name: "skip", Overlap: job.OverlapSkip, Retry: patient, CatchUp: all},
			Every: 2 * time.Second, Act: works(0, 3*time.Second), Outcomes: []job.State{job.Succeeded, job.Skipped},
		}, {
			Job:   job.Job{Name: "queue", Overlap: job.OverlapQueue, Retry: patient, CatchUp: all},
			Every: 4 * time.Second, Act: works(0, 2*time.Second), Outcomes: succeeds,
		}, {
			Job:   job.Job{Name: "latest", Overlap: job.OverlapLatest, Retry: patient, CatchUp: all},
			Every: 2 * time.Second, Act: works(0, 4*time.Second), Outcomes: []job.State{job.Succeeded, job.Skipped},
		}, {
			Job:   job.Job{Name: "replace", Overlap: job.OverlapReplace, Retry: patient, CatchUp: all},
			Every: 3 * time.Second, Act: works(0, 12*time.Second), Outcomes: []job.State{job.Succeeded, job.Skipped, job.Cancelled},
		}, {
			Job:   job.Job{Name: "pair", Overlap: job.OverlapAllow, Concurrency: 2, Retry: patient, CatchUp: all},
			Every: 4 * time.Second, Act: works(0, 6*time.Second), Outcomes: succeeds,
		}, {
			Job:   job.Job{Name: "finish", Queue: slow, OnLeaseLost: job.LeaseLostFinish, Retry: patient, CatchUp: all},
			Every: wholeSeconds(lease / 3), Act: works(lease/4, lease*3/2), Outcomes: succeeds,
		}, {
			Job:   job.Job{Name: "again", Overlap: job.OverlapSkip, Retry: patient, CatchUp: all},
			Every: 2 * time.Second, Outcomes: []job.State{job.Succeeded, job.Skipped},
			Act: func(r *rand.Rand, attempt int) Act {
				return Act{Work: Between(r, 0, 200*time.Millisecond), Result: []string{ResultOK, ResultLater}[min(attempt%4, 1)]}
			},
		}, {
			// Its output and its error do not fit into a record on a server with a small limit.
			Job:   job.Job{Name: "wordy", Output: job.MaxOutput, Retry: patient, CatchUp: all},
			Every: 5 * time.Second, Outcomes: succeeds,
			Act: func(_ *rand.Rand, attempt int) Act {
				return Act{Result: []string{ResultOK, ResultError}[min(attempt%3, 1)], Words: job.MaxOutput}
			},
		}, {
			Job:   job.Job{Name: "split", Shards: 3, Retry: patient, CatchUp: all},
			Every: 5 * time.Second, Act: works(0, time.Second), Outcomes: succeeds,
		}, {
			// So many shards of one instant are published in batches if the server syncs each write.
			Job:   job.Job{Name: "crowd", Shards: 150, Retry: patient, CatchUp: all},
			Every: 10 * time.Second, Act: works(0, 0), Outcomes: succeeds,
		}, {
			Job:   job.Job{Name: "triggered", Schedule: job.OnDemand, Retry: patient},
			Every: 2 * time.Second, Triggered: true, Act: short, Outcomes: succeeds,
		},
	}
	acts := foreign(lease)
	for i := range cases {
		j := &cases[i].Job
		if j.Schedule == "" {
			j.Schedule = fmt.Sprintf("@every %v", cases[i].Every)
		}
		j.Overlap = cmp.Or(j.Overlap, job.OverlapAllow)
		if act, ok := acts[j.Name]; ok {
			j.Payload = act.payload()
		}
	}
	return cases
}

var (
	succeeds = []job.State{job.Succeeded}
	fails    = []job.State{job.Failed}
)

// Slots returns the planned slots of the case between from (inclusive) and until (exclusive), with
// their shards.
func (c Case) Slots(from, until time.Time) []job.Slot {
	if c.Triggered {
		return nil
	}
	every := int64(c.Every / time.Second)
	var slots []job.Slot
	for u := (from.Unix() + every - 1) / every * every; u < until.Unix(); u += every {
		s := job.NewSlot(c.Job.Name, time.Unix(u, 0))
		slots = append(slots, s)
		for i := range c.Job.Shards {
			slots = append(slots, s.WithShard(i+1, c.Job.Shards))
		}
	}
	return slots
}

// Attempt returns what an attempt of the slot does. The result depends only on the seed, the slot
// and the number of the attempt.
func (c Case) Attempt(seed uint64, s job.Slot, attempt int) Act {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", s.ID(), attempt)
	return c.Act(rand.New(rand.NewPCG(seed, h.Sum64())), attempt)
}

// Between draws a duration from least (inclusive) to most (exclusive).
func Between(r *rand.Rand, least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(r.Int64N(int64(most-least)))
}

func wholeSeconds(d time.Duration) time.Duration { return max(d.Truncate(time.Second), 2*time.Second) }

// Order returns the slot of the nth trigger of a torture that began at from, and the time for which
// it is triggered. Every second trigger is for a later time. The time of the others is zero: they
// are due immediately.
func (c Case) Order(from time.Time, n int) (s job.Slot, at time.Time) {
	s = job.Slot{Job: c.Job.Name, Token: fmt.Sprintf("key-%d", n)}
	if n%2 == 1 {
		at = from.Add(time.Duration(n)*c.Every + ahead)
	}
	return s, at
}

// ahead is the time from the sending of a trigger for a later time until it is due.
const ahead = 4 * time.Second
