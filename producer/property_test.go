package producer

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// step is one event in the life of a fleet, and the pause before it.
type step struct {
	Pause time.Duration
	Kind  string
	Arg   int
}

var (
	stepKinds = []string{
		"start", "start", "kill", "kill all", "freeze", "thaw", "away", "back", "faults", "calm", "deafen", "listen", "lossy", "heard", "die",
		"edit", "touch", "create", "remove", "pause", "resume", "pause", "resume",
	}
	specs = []string{"*/10 * * * * *", "*/15 * * * * *", "* * * * *", "@every 40s", "7,8,9 * * * * *"}
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

// scene applies steps to a broker.
type scene struct {
	*broker
	jobs  []job.Job
	alive []*running
	thaw  []func()
}

func (f *scene) play(s step) {
	advance(s.Pause)
	pick := func(n int) int { return s.Arg % max(n, 1) }
	switch s.Kind {
	case "start":
		if len(f.alive) < 7 {
			f.alive = append(f.alive, f.member())
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
	case "die":
		if i := pick(len(f.alive)); len(f.alive) > 0 {
			f.thawAll()
			f.alive[i].die()
			f.alive = append(f.alive[:i], f.alive[i+1:]...)
		}
	case "lossy", "heard":
		r := rand.New(rand.NewPCG(uint64(s.Arg), 3))
		f.mu.Lock()
		f.lost = func(*view, *view) bool { return s.Kind == "lossy" && r.IntN(3) == 0 }
		f.mu.Unlock()
	case "faults":
		f.setAnswer(faulty(uint64(s.Arg)))
	case "calm":
		f.setAnswer(nil)
	case "deafen", "listen":
		if len(f.alive) > 0 {
			f.alive[pick(len(f.alive))].deafen(s.Kind == "deafen")
		}
	case "remove", "pause", "resume":
		f.disturb(s.Kind, f.jobs[pick(len(f.jobs))].Name)
	default:
		f.change(s.Kind, s.Arg)
	}
}

// disturb applies a step to a job that must exist.
func (f *scene) disturb(kind, name string) {
	_, there := f.entries(time.Now())[name]
	switch {
	case !there:
	case kind == "pause":
		f.pause(name)
	case kind == "resume":
		f.resume(name)
	default:
		f.delete(name)
	}
}

// entries returns the registry as it was at an instant.
func (f *scene) entries(at time.Time) map[string]plans.Entry {
	entries := map[string]plans.Entry{}
	for _, ev := range f.log {
		if ev.Time.After(at) {
			break
		}
		if ev.Deleted {
			delete(entries, ev.Name)
		} else {
			entries[ev.Name] = ev.Entry
		}
	}
	return entries
}

func (f *scene) thawAll() {
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

func (f *scene) kill(i int) {
	f.thawAll() // a frozen process dies at its next step
	f.alive[i].stop()
	f.alive = append(f.alive[:i], f.alive[i+1:]...)
}

func (f *scene) change(kind string, arg int) {
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

// planned returns the slots that should have been published by now: those of every stretch
// of every job in the registry.
func (f *scene) planned() (map[string]time.Time, error) {
	planned := map[string]time.Time{}
	for name, e := range f.entries(time.Now()) {
		for _, p := range e.Plans() {
			s, err := job.ParseSchedule(name, p.Plan)
			if err != nil {
				return nil, err
			}
			for _, part := range e.Stretches(p, s) {
				until := time.Now()
				if !part.Until.IsZero() {
					until = part.Until
				}
				for at := range s.Between(part.After, until) {
					planned[job.NewSlot(name, at).ID()] = at
				}
			}
		}
	}
	return planned, nil
}

// problems compares what is stored with what should be: every slot of every plan, each
// judged by its age and the pauses, and no other slot that a worker would run.
func (f *scene) problems(end time.Time) (wrong []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	planned, err := f.planned()
	if err != nil {
		return []string{err.Error()}
	}
	missed := map[string]bool{}
	for _, m := range f.stored {
		if m.Slot.Range {
			for _, id := range f.members(m) {
				missed[id] = true
			}
		}
	}
	for id, at := range planned {
		if _, ok := f.stored[id]; !ok && !missed[id] && !at.After(end) {
			wrong = append(wrong, id+" is lost")
		}
	}
	for id, m := range f.stored {
		if why := f.wrong(m, f.storedAt[id], len(planned)); why != "" {
			wrong = append(wrong, id+" "+why)
		}
	}
	return wrong
}

// wrong returns what is wrong with a message that was stored at the given time.
func (f *scene) wrong(m core.Message, at time.Time, slots int) string {
	age := at.Sub(m.Due)
	if age < 0 {
		return fmt.Sprintf("is stored %v early", -age)
	}
	e, there := f.entries(at)[m.Slot.Job]
	v := core.View{Now: at, Self: "worker", Horizon: job.DefaultHorizon, Handles: true}
	if there {
		v.Entry = &e
	}
	runs := core.Decide(core.Delivery{Message: m, Published: at, Count: 1}, v).Action == core.Start
	_, paused := e.PausedAt(m.Due)
	policy := e.Job.CatchUp.Policy
	switch {
	case runs && !hasSlot(e, m.Slot.At):
		return "would run, and is of no plan"
	case !there:
	case paused && runs && !m.CaughtUp:
		return "would run, and fell due in a pause"
	case (m.CaughtUp || m.Missed > 0) && age <= plans.LateAfter && !paused && m.JobRevision == e.Revision:
		return fmt.Sprintf("is judged late at the age of %v", age)
	case m.Missed > 0 && policy == job.CatchUpAll && slots < job.DefaultCatchUpMax:
		return "is missed although all are to run"
	case m.CaughtUp && policy == job.CatchUpNone:
		return "is caught up although none is to run"
	}
	return ""
}

// hasSlot reports whether the instant is a slot of the plan that was in force then.
func hasSlot(e plans.Entry, at time.Time) bool {
	for _, p := range e.Plans() {
		if s, err := job.ParseSchedule("", p.Plan); at.After(p.From) && (p.To.IsZero() || !at.After(p.To)) {
			return err == nil && s.Includes(at)
		}
	}
	return false
}

// Whatever happens to the producers and the broker, every slot of every plan is published
// in the end, under its name, and judged as late only if it was.
func TestEverySlotIsPublishedWhateverHappens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		steps := drawSteps(rt)
		var wrong []string
		synctest.Test(t, func(t *testing.T) {
			f := &scene{broker: newBroker(t)}
			f.check = func(wm exchange.Watermark) {
				if id := f.unstored(wm); id != "" {
					wrong = append(wrong, fmt.Sprintf("watermark %v at %d vouches for %s", wm.Time, wm.Revision, id))
				}
				if wm.Time.Before(f.mark.Time) || wm.Revision < f.mark.Revision {
					wrong = append(wrong, "the watermark went back")
				}
			}
			f.change("create", 0)
			for _, s := range steps {
				f.play(s)
			}
			end := time.Now()
			f.thawAll()
			f.setAway(false)
			f.setAnswer(nil)
			f.alive = append(f.alive, f.member())
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
