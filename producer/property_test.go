package producer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/job"
	"pgregory.net/rapid"
)

// step is one event in the life of a fleet, after a pause.
type step struct {
	Pause time.Duration
	Kind  string
	Arg   int
}

var (
	stepKinds = []string{"start", "start", "kill", "kill all", "freeze", "thaw", "away", "back", "faults", "calm", "edit", "touch", "create"}
	specs     = []string{"*/10 * * * * *", "*/15 * * * * *", "* * * * *", "@every 40s", "7,8,9 * * * * *"}
)

func drawSteps(t *rapid.T) []step {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			time.Duration(rapid.IntRange(0, 100_000).Draw(t, "ms")) * time.Millisecond,
			rapid.SampledFrom(stepKinds).Draw(t, "kind"),
			rapid.IntRange(0, 1000).Draw(t, "arg"),
		}
	}), 1, 25).Draw(t, "steps")
}

// fleet plays steps against a broker.
type fleet struct {
	*broker
	jobs  []job.Job
	alive []*running
	thaw  []func()
}

func (f *fleet) play(s step) {
	advance(s.Pause)
	pick := func(n int) int { return s.Arg % max(n, 1) }
	switch s.Kind {
	case "start":
		if len(f.alive) < 4 {
			f.alive = append(f.alive, f.start())
		}
	case "kill":
		if len(f.alive) > 0 {
			f.kill(pick(len(f.alive)))
		}
	case "kill all":
		for len(f.alive) > 0 {
			f.kill(0)
		}
	case "freeze":
		if len(f.alive) > 0 {
			f.thaw = append(f.thaw, f.alive[pick(len(f.alive))].freeze())
		}
	case "thaw":
		f.thawAll()
	case "away", "back":
		f.setAway(s.Kind == "away")
	case "faults":
		f.setAnswer(faulty(uint64(s.Arg)))
	case "calm":
		f.setAnswer(nil)
	case "edit", "touch", "create":
		f.edit(s.Kind, s.Arg)
	}
}

func (f *fleet) thawAll() {
	for _, thaw := range f.thaw {
		thaw()
	}
	f.thaw = nil
	for _, p := range f.alive {
		p.view.mu.Lock()
		p.frozen = nil
		p.view.mu.Unlock()
	}
}

func (f *fleet) kill(i int) {
	f.thawAll() // a frozen process dies at its next step
	f.alive[i].stop()
	f.alive = append(f.alive[:i], f.alive[i+1:]...)
}

func (f *fleet) edit(kind string, arg int) {
	i := arg % max(len(f.jobs), 1)
	switch kind {
	case "create":
		f.jobs = append(f.jobs, every(fmt.Sprint("job", len(f.jobs)), specs[arg%len(specs)], policies[arg%4].policy))
		i = len(f.jobs) - 1
	case "edit":
		f.jobs[i].Schedule = specs[arg%len(specs)]
	case "touch":
		f.jobs[i].Payload = fmt.Append(nil, arg)
	}
	f.apply(f.jobs[i])
}

// problems holds what is stored against what should be: every slot of every
// plan, each judged as its age allows.
func (f *fleet) problems(end time.Time) (wrong []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := map[string]job.Entry{}
	for _, ev := range f.log {
		last[ev.Name] = ev.Entry
	}
	oracle := map[string]time.Time{}
	for name, e := range last {
		for _, p := range e.Plans() {
			s, err := job.ParseSchedule(name, p.Plan)
			if err != nil {
				return []string{err.Error()}
			}
			until := time.Now()
			if !p.To.IsZero() {
				until = p.To
			}
			for at := range s.Between(p.From, until) {
				oracle[job.NewSlot(name, at).ID()] = at
			}
		}
	}
	for id, at := range oracle {
		if _, ok := f.stored[id]; !ok && !at.After(end) {
			wrong = append(wrong, id+" is lost")
		}
	}
	for id, m := range f.stored {
		age := f.storedAt[id].Sub(m.Due)
		switch {
		case oracle[id].IsZero():
			wrong = append(wrong, id+" is of no plan")
		case age < 0:
			wrong = append(wrong, fmt.Sprintf("%s is stored %v early", id, -age))
		case (m.CaughtUp || m.Missed > 0) && age <= DefaultLate:
			wrong = append(wrong, fmt.Sprintf("%s is judged late at the age of %v", id, age))
		case m.Missed > 0 && last[m.Slot.Job].Job.CatchUp.Policy == job.CatchUpAll && len(oracle) < job.DefaultCatchUpMax:
			wrong = append(wrong, id+" is missed although all are to run")
		case m.CaughtUp && last[m.Slot.Job].Job.CatchUp.Policy == job.CatchUpNone:
			wrong = append(wrong, id+" is caught up although none is to run")
		}
	}
	return wrong
}

// Whatever becomes of the producers and the broker, every slot of every plan is
// published in the end, under its name, and judged late only if it was.
func TestEverySlotIsPublishedWhateverHappens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		steps := drawSteps(rt)
		var wrong []string
		synctest.Test(t, func(t *testing.T) {
			f := &fleet{broker: newBroker(t)}
			f.check = func(wm job.Watermark) {
				if id := f.unstored(wm); id != "" {
					wrong = append(wrong, fmt.Sprintf("watermark %v at %d vouches for %s", wm.Time, wm.Revision, id))
				}
				if wm.Time.Before(f.mark.Time) || wm.Revision < f.mark.Revision {
					wrong = append(wrong, "the watermark went back")
				}
			}
			f.edit("create", 0)
			for _, s := range steps {
				f.play(s)
			}
			end := time.Now()
			f.thawAll()
			f.setAway(false)
			f.setAnswer(nil)
			f.alive = append(f.alive, f.start())
			advance(30 * time.Second)
			for len(f.alive) > 0 {
				f.kill(0)
			}
			wrong = append(wrong, f.problems(end.Add(20*time.Second))...)
		})
		if len(wrong) > 0 {
			rt.Fatalf("%d wrong, among them %q", len(wrong), wrong[:min(5, len(wrong))])
		}
	})
}
