package verify_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/check/verify"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// drawEntry draws a job with up to two past plans.
func drawEntry(t *rapid.T, name string, cfg verify.Config) plans.Entry {
	schedules := rapid.SampledFrom([]string{"* * * * * *", "@every 7s", "*/5 * * * *", "30 */2 * * * *", "H * * * *"})
	plan := func(label string) job.Job {
		return job.Job{Name: name, Overlap: job.OverlapAllow, Schedule: schedules.Draw(t, name+label), Spread: rapid.SampledFrom([]time.Duration{0, 0, 40 * time.Second}).Draw(t, name+label+" spread")}
	}
	within := func(label string) time.Time {
		return cfg.From.Add(time.Duration(rapid.Int64Range(0, int64(cfg.To.Sub(cfg.From))).Draw(t, name+label)))
	}
	e := plans.Entry{Revision: 5, Definition: plans.Definition{Job: plan(" schedule")}}
	begins := []time.Time{cfg.From.Add(-time.Hour)}
	for i := range rapid.IntRange(0, 2).Draw(t, name+" edits") {
		begins = append(begins, within(fmt.Sprint(" edit ", i)))
	}
	slices.SortFunc(begins, time.Time.Compare)
	for i, from := range begins[:len(begins)-1] {
		e.Past = append(e.Past, plans.PastPlan{Plan: plan(fmt.Sprint(" plan ", i)).Plan(), From: from, To: begins[i+1]})
	}
	e.Definition.Since = begins[len(begins)-1]
	return e
}

// planned finds the slots of an entry: it asks for every second whether it is a slot.
func planned(t *rapid.T, e plans.Entry, cfg verify.Config) (slots []job.Slot) {
	for _, p := range e.Plans() {
		s, err := job.ParseSchedule(e.Job.Name, p.Plan)
		if err != nil {
			t.Fatal(err)
		}
		for unix := cfg.From.Unix(); unix < cfg.To.Unix(); unix++ {
			at := time.Unix(unix, 0).UTC()
			inForce := at.After(p.From) && (p.To.IsZero() || !at.After(p.To))
			if inForce && s.Includes(at) && !at.Before(cfg.From) && !at.Add(s.Delay()+verify.Settle).After(cfg.Now) {
				slots = append(slots, job.NewSlot(e.Job.Name, at))
			}
		}
	}
	return slots
}

// If values are removed from a perfect history, exactly these slots are reported, in any order of the
// records.
func TestExactlyWhatIsTakenOutIsReported(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cfg := hours()
		cfg.From = ago(time.Duration(rapid.IntRange(1, 1200).Draw(t, "seconds")) * time.Second)
		cfg.To = noon
		cfg.Now = noon.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "later")) * time.Second)
		f := facts{cfg: cfg}
		var want []string
		seed := rapid.Uint64().Draw(t, "seed") // of what happens to each slot
		slots := 0
		for i := range rapid.IntRange(1, 3).Draw(t, "jobs") {
			e := drawEntry(t, fmt.Sprint("job", i), cfg)
			f.entries = append(f.entries, e)
			for _, s := range planned(t, e, cfg) {
				slots++
				seed = seed*6364136223846793005 + 1442695040888963407
				switch kind := seed >> 33 % 40; kind {
				case 0: // lost
					want = append(want, "missing "+s.ID())
				case 1: // waits, just published
					f.wait(s, cfg.Now)
				case 2: // waits for too long
					f.wait(s, cfg.Now.Add(-2*verify.Patience))
					if cfg.Now.Sub(s.At) > verify.Patience+time.Minute {
						want = append(want, "no_outcome "+s.ID())
					} else {
						f.late[s] = cfg.Now
					}
				case 3: // its worker died, its message is lost
					f.records = append(f.records, unsettled(s, job.Running, "fenced"))
					want = append(want, "no_outcome "+s.ID())
				case 4: // runs, and waits in case its worker dies
					f.records = append(f.records, unsettled(s, job.Running, "live"))
					f.wait(s, s.At)
				case 5: // done, and not acked yet
					f.records = append(f.records, done(s))
					f.wait(s, s.At)
				default:
					f.records = append(f.records, done(s))
				}
			}
		}
		f.records = rapid.Permutation(f.records).Draw(t, "records")
		c := f.check()
		var got []string
		for p := range c.Problems() {
			got = append(got, string(p.Kind)+" "+p.Slot.ID())
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
		r := c.Report()
		accounted := r.Missing + r.NoOutcome + r.InProgress + r.Outcomes[job.Succeeded]
		if r.Slots != slots || accounted != slots || r.Doubled != 0 || r.Beside != 0 {
			t.Fatalf("%d slots are %+v", slots, r)
		}
	})
}
