package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/lab/memstore"
	"github.com/cronce-io/cronce/job"
)

func (p *place) apply(t *testing.T, o client.ApplyOptions, jobs ...job.Job) []client.Applied {
	t.Helper()
	report, err := p.Apply(t.Context(), jobs, o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// stored returns every job's schedule and owner, like "report=@hourly/operator".
func (p *place) stored(t *testing.T) string {
	t.Helper()
	entries, err := p.store.Jobs().List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, e := range entries {
		words = append(words, fmt.Sprintf("%s=%s/%s", e.Job.Name, e.Job.Schedule, e.Owner))
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func actions(report []client.Applied) string {
	var words []string
	for _, d := range report {
		word := fmt.Sprintf("%s %s", d.Action, d.Job)
		if d.Err != nil {
			word += "!"
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

func named(name, schedule string) job.Job { return job.Job{Name: name, Schedule: schedule} }

func TestApplyCreatesUpdatesKeepsAndPrunes(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	p.define(t, named("filed", "@daily"), "file", "web1")
	p.define(t, named("same", "@daily"), "file", "web1")
	p.define(t, named("let-go", "@daily"), "released", "bob@b")
	p.define(t, named("edited", "@daily"), "code", "web1")
	p.apply(t, client.ApplyOptions{}, named("edited", "@weekly"), named("mine", "@daily"))

	jobs := []job.Job{named("new", "@hourly"), named("filed", "@hourly"), named("same", "@daily")}
	for _, o := range []client.ApplyOptions{{DryRun: true, Prune: true}, {Prune: true}} {
		before := p.stored(t)
		report := p.apply(t, o, jobs...)
		if got, want := actions(report), "create new, update filed, keep same, delete mine"; got != want {
			t.Errorf("%+v: %s, want %s", o, got, want)
		}
		after := "edited=@weekly/operator filed=@hourly/operator let-go=@daily/released new=@hourly/operator same=@daily/file"
		if o.DryRun {
			after = before
		}
		if got := p.stored(t); got != after {
			t.Errorf("%+v: stored is %s, want %s", o, got, after)
		}
	}
	if got, want := actions(p.apply(t, client.ApplyOptions{Prune: true}, jobs...)), "keep new, keep filed, keep same"; got != want {
		t.Errorf("again: %s, want %s", got, want)
	}
}

// An operator can apply an older file, to roll back.
func TestApplyBringsBackWhatWasSuperseded(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	p.apply(t, client.ApplyOptions{}, named("report", "@hourly"))
	p.apply(t, client.ApplyOptions{}, named("report", "@daily"))
	p.apply(t, client.ApplyOptions{}, named("report", "@hourly"))
	if got, want := p.stored(t), "report=@hourly/operator"; got != want {
		t.Errorf("stored is %s, want %s", got, want)
	}
}

func TestApplyWritesNothingWhenOneJobIsWrong(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	for name, jobs := range map[string][]job.Job{
		"a bad schedule":   {hourly("a"), named("b", "61 * * * *")},
		"two of one name":  {hourly("a"), hourly("a")},
		"a name with a *":  {hourly("a"), hourly("*")},
		"a line feed":      {hourly("a"), hourly("b\nc")},
		"a zone of no map": {hourly("a"), {Name: "b", Schedule: "@hourly", Timezone: "Mars/Base"}},
	} {
		report, err := p.Apply(t.Context(), jobs, client.ApplyOptions{})
		if !errors.Is(err, job.ErrInvalid) || report != nil {
			t.Errorf("%s: %v, %v, want invalid", name, report, err)
		}
	}
	if got := p.stored(t); got != "" {
		t.Errorf("stored is %s, want nothing", got)
	}
}

// Two operators apply at the same time. The second gets a conflict that names the first.
// Its other jobs are written.
func TestApplyNamesTheOperatorWhoWasFirst(t *testing.T) {
	t.Parallel()
	alice := newPlace(t, "alice@a")
	alice.apply(t, client.ApplyOptions{}, hourly("shared"), hourly("old"))
	alice.meanwhile = func() { alice.as("bob@b").apply(t, client.ApplyOptions{}, named("shared", "@daily")) }
	report, err := alice.Apply(t.Context(), []job.Job{named("shared", "@weekly"), hourly("own")}, client.ApplyOptions{Prune: true})

	var conflict *client.ConflictError
	if !errors.As(err, &conflict) || conflict.Job != "shared" || conflict.By != "bob@b" || conflict.Revision == 0 {
		t.Errorf("got %v, want a conflict with bob@b", err)
	}
	if got, want := actions(report), "update shared!, create own, delete old!"; got != want {
		t.Errorf("%s, want %s: nothing is pruned after a conflict", got, want)
	}
	if got, want := alice.stored(t), "old=@hourly/operator own=@hourly/operator shared=@daily/operator"; got != want {
		t.Errorf("stored is %s, want %s", got, want)
	}
	alice.apply(t, client.ApplyOptions{}, named("shared", "@weekly")) // as the error says
}

func TestApplyOfTheSameJobIsNoConflict(t *testing.T) {
	t.Parallel()
	alice := newPlace(t, "alice@a")
	alice.meanwhile = func() { alice.as("bob@b").apply(t, client.ApplyOptions{}, hourly("report")) }
	if got, want := actions(alice.apply(t, client.ApplyOptions{}, hourly("report"))), "keep report"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Yesterday's file does not overwrite today's edit.
func TestApplyWithARevisionChangesOnlyWhatWasSeen(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	p.apply(t, client.ApplyOptions{}, hourly("a"), hourly("b"))
	seen := uint64(2)
	p.as("bob@b").apply(t, client.ApplyOptions{}, named("b", "@daily"))

	_, err := p.Apply(t.Context(), []job.Job{named("a", "@weekly"), named("b", "@weekly")}, client.ApplyOptions{Seen: &seen})
	if !errors.Is(err, job.ErrConflict) || !strings.Contains(err.Error(), "bob@b") {
		t.Errorf("over bob's edit: %v, want a conflict", err)
	}
	if got, want := p.stored(t), "a=@hourly/operator b=@daily/operator"; got != want {
		t.Errorf("stored is %s, want %s: nothing may be written", got, want)
	}
	p.apply(t, client.ApplyOptions{Seen: &seen}, named("a", "@weekly"), named("b", "@daily")) // b is unchanged

	if err := p.Remove(t.Context(), "b", client.RemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	var conflict *client.ConflictError
	_, err = p.Apply(t.Context(), []job.Job{named("b", "@weekly")}, client.ApplyOptions{Seen: &seen})
	if !errors.As(err, &conflict) || !conflict.Removed {
		t.Errorf("over a removal: %v, want a conflict", err)
	}
}

func TestApplyReplacesABrokenDefinitionButNotANewerOne(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	p.define(t, named("broken", "61 * * * *"), "file", "web1")
	report := p.apply(t, client.ApplyOptions{}, hourly("broken"))
	if report[0].Action != client.Update || report[0].Broken == nil {
		t.Errorf("%+v, want an update of what is broken", report[0])
	}
	if got, want := p.stored(t), "broken=@hourly/operator"; got != want {
		t.Errorf("stored is %s, want %s", got, want)
	}
	unreadable := fmt.Errorf("%w: v=2", job.ErrVersion)
	p.store.Jobs().FailReads(func(string) error { return unreadable })
	if _, err := p.Apply(t.Context(), []job.Job{hourly("broken")}, client.ApplyOptions{}); !errors.Is(err, job.ErrVersion) {
		t.Errorf("over what a newer program wrote: %v, want a refusal", err)
	}
}

// Any write may fail, with or without effect. Each job is then old or new, and the same apply
// does the rest.
func TestApplyAgainFinishesWhatAFailureLeft(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		p := newPlace(t, "alice@a")
		var old, wanted []job.Job
		for i := range rapid.IntRange(1, 40).Draw(rt, "jobs") {
			name := fmt.Sprintf("j%02d", i)
			if rapid.Bool().Draw(rt, "is there") {
				old = append(old, named(name, "@daily"))
			}
			wanted = append(wanted, named(name, "@hourly"))
		}
		if len(old) > 0 {
			p.apply(t, client.ApplyOptions{}, old...)
		}
		faults := rapid.SliceOf(rapid.SampledFrom([]memstore.Fault{
			memstore.None, memstore.None, memstore.None, memstore.LostAnswer, memstore.LostRequest, memstore.Late, memstore.Refused,
		})).Draw(rt, "faults")
		p.store.Jobs().FailNext(faults...)
		report, err := p.Apply(t.Context(), wanted, client.ApplyOptions{})
		for _, d := range report {
			e, _, readErr := p.store.Jobs().Read(t.Context(), d.Job)
			isNew := readErr == nil && e.Job.Schedule == "@hourly"
			if d.Err == nil && !isNew {
				rt.Fatalf("%s is said to be written, and is not", d.Job)
			}
			if d.Err != nil && isNew && !errors.Is(d.Err, job.ErrUnknown) {
				rt.Fatalf("%s is said not to be written (%v), and is", d.Job, d.Err)
			}
			if d.Err != nil && err == nil {
				rt.Fatalf("%s failed (%v), and Apply returned no error", d.Job, d.Err)
			}
		}
		p.store.Jobs().Fail(nil)
		p.store.Jobs().Land()
		again, err := p.Apply(t.Context(), wanted, client.ApplyOptions{})
		if err != nil {
			rt.Fatalf("again: %v", err)
		}
		for _, d := range again {
			if e, _, err := p.store.Jobs().Read(t.Context(), d.Job); err != nil || e.Job.Schedule != "@hourly" {
				rt.Fatalf("again: %s is %+v, %v", d.Job, e.Job, err)
			}
		}
	})
}

func TestApplyBeginsNothingAfterItsContextEnds(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	ctx, cancel := context.WithCancel(t.Context())
	var jobs []job.Job
	for i := range 100 {
		jobs = append(jobs, hourly(fmt.Sprint("j", i)))
	}
	p.store.Jobs().FailReads(func(string) error { cancel(); return nil })
	if report, err := p.Apply(ctx, jobs, client.ApplyOptions{}); err == nil {
		t.Errorf("told to end while it looked: %s", actions(report))
	}
	if got := p.stored(t); got != "" {
		t.Errorf("stored is %s, want nothing", got)
	}
}

func TestApplySaysWhichSlotsComeAndGo(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	clock := func(slots []time.Time) string {
		var words []string
		for _, at := range slots {
			words = append(words, at.Format("02T15:04"))
		}
		return strings.Join(words, " ")
	}
	for _, step := range []struct {
		name              string
		job               job.Job
		appear, disappear string
	}{
		{"a new job", named("report", "0 * * * *"), "28T13:00 28T14:00 28T15:00", ""},
		{"every second of them", named("report", "0 */2 * * *"), "", "28T13:00 28T15:00 28T17:00"},
		{"at another minute", named("report", "30 */2 * * *"), "28T12:30 28T14:30 28T16:30 28T18:30 28T20:30", "28T14:00 28T16:00 28T18:00 28T20:00 28T22:00"},
		{"of the same, one more", named("report", "0,30 */2 * * *"), "28T14:00 28T16:00", ""},
		{"another payload", job.Job{Name: "report", Schedule: "0,30 */2 * * *", Payload: []byte(`1`)}, "", ""},
		{"never again", named("report", "@at 2026-01-01T00:00:00Z"), "", "28T12:30 28T14:00 28T14:30 28T16:00 28T16:30"},
	} {
		d := p.apply(t, client.ApplyOptions{}, step.job)[0]
		if clock(d.Appear) != step.appear || clock(d.Disappear) != step.disappear {
			t.Errorf("%s: come %q, go %q; want %q, %q", step.name, clock(d.Appear), clock(d.Disappear), step.appear, step.disappear)
		}
	}
}

func TestFieldsAreNamedAsInTheFile(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	p.apply(t, client.ApplyOptions{}, job.Job{Name: "report", Schedule: "@hourly", Payload: []byte(`{"a":{"b":1},"c":2}`)})
	d := p.apply(t, client.ApplyOptions{}, job.Job{
		Name: "report", Schedule: "@daily", Timezone: "Europe/Berlin", Timeout: time.Minute,
		Payload: []byte(`{"a":{"b":2},"d":[1]}`), Retry: job.Retry{Attempts: 1}, CatchUp: job.CatchUp{Policy: job.CatchUpAll},
	})[0]
	var got []string
	for _, f := range d.Fields {
		got = append(got, fmt.Sprintf("%s: %s -> %s", f.Name, f.Old, f.New))
	}
	want := []string{
		`catch_up.policy: "latest" -> "all"`, `payload.a.b: 1 -> 2`, `payload.c: 2 -> `, `payload.d:  -> [1]`,
		`retry.attempts: 3 -> 1`, `schedule: "@hourly" -> "@daily"`, `timeout:  -> "1m0s"`, `timezone: "UTC" -> "Europe/Berlin"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestHandlersAreLiveWorkersOfTheJobsQueue(t *testing.T) {
	t.Parallel()
	p, at := newPlace(t, "alice@a"), time.Now()
	p.Client = client.Attach(attach.Parts{ // with the clock that stamps the heartbeats
		Jobs: p.store.Jobs(), Nodes: p.store.Nodes(), Handlers: p.store.HandlerLists(), Ledger: p.store.Ledger(), Settings: job.Settings{}.WithDefaults(),
		Now: func(context.Context) (time.Time, error) { return at, nil },
	})
	for name, n := range map[string]exchange.Node{
		"good":         {State: exchange.NodeAlive, Worker: true, Queues: []string{"default"}},
		"other-queue":  {State: exchange.NodeAlive, Worker: true, Queues: []string{"slow"}},
		"cut":          {State: exchange.NodeAlive, Worker: true, Queues: []string{"default"}},
		"no-handler":   {State: exchange.NodeAlive, Worker: true, Queues: []string{"default"}},
		"fenced":       {State: exchange.NodeFenced, Worker: true, Queues: []string{"default"}},
		"for-produces": {State: exchange.NodeAlive, Producer: true},
	} {
		n.Name, n.Lease, n.Nonce = name, job.MaxLease, name
		if _, err := p.store.Nodes().Write(t.Context(), n, 0); err != nil {
			t.Fatal(err)
		}
		list := exchange.Handlers{Node: name, Nonce: name}
		switch name {
		case "no-handler":
		case "cut":
			list.More = 1
		default:
			list.Jobs = []string{"report"}
		}
		if _, err := p.store.HandlerLists().Write(t.Context(), list, 0); err != nil {
			t.Fatal(err)
		}
	}
	if d := p.apply(t, client.ApplyOptions{}, hourly("report"))[0]; d.Handlers != 2 {
		t.Errorf("%d handlers, want the good one, and the one whose list is cut", d.Handlers)
	}
	at = at.Add(2000 * 24 * time.Hour)
	if d, err := p.Job(t.Context(), "report"); err != nil || len(d.Handlers) != 0 {
		t.Errorf("when all are silent: %v, %v", d.Handlers, err)
	}
}

func TestReleaseEndsAnOperatorsHold(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	p.apply(t, client.ApplyOptions{}, hourly("report"))
	e, err := p.Release(t.Context(), "report")
	if err != nil || !e.Changed || e.Owner != "released" || e.By != "alice@a" {
		t.Fatalf("%+v, %v", e, err)
	}
	if e, err := p.Release(t.Context(), "report"); e.Changed || err != nil {
		t.Errorf("again: %v, %v, want no change", e.Changed, err)
	}
	if _, err := p.Release(t.Context(), "other"); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("of no job: %v", err)
	}
	p.apply(t, client.ApplyOptions{}, named("report", "@daily"))
	p.meanwhile = func() { p.as("bob@b").apply(t, client.ApplyOptions{}, named("report", "@weekly")) }
	if _, err := p.Release(t.Context(), "report"); !errors.Is(err, job.ErrConflict) {
		t.Errorf("while bob edits: %v, want a conflict", err)
	}
}

func after(name string, before ...string) job.Job { return job.Job{Name: name, After: before} }

// A job of a file can close the cycle.
func TestApplyRefusesACycle(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	p.define(t, after("b", "a"), "file", "web1")
	p.define(t, after("c", "b"), "file", "web1")
	stored := p.stored(t)
	_, err := p.Apply(t.Context(), []job.Job{named("d", "@daily"), after("a", "d", "c")}, client.ApplyOptions{})
	if !errors.Is(err, job.ErrInvalid) || !strings.Contains(err.Error(), "a after c after b after a") {
		t.Errorf("got %v", err)
	}
	if got := p.stored(t); got != stored {
		t.Errorf("stored %s, want %s: nothing is written", got, stored)
	}
	// An edit of the other job opens the cycle.
	p.apply(t, client.ApplyOptions{}, after("a", "d", "c"), after("b", "d"), named("d", "@daily"))
}

func TestApplyNamesMissingJobs(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	p.define(t, named("there", "@daily"), "file", "web1")
	report := p.apply(t, client.ApplyOptions{}, named("given", "@daily"), after("load", "there", "given", "nowhere"))
	if got := report[1].Missing; !slices.Equal(got, []string{"nowhere"}) || len(report[0].Missing) > 0 {
		t.Errorf("missing %v and %v, want nowhere", got, report[0].Missing)
	}
}

func TestApplyNamesThePrunedJobsAsMissing(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	p.apply(t, client.ApplyOptions{}, named("gone", "@daily"))
	report := p.apply(t, client.ApplyOptions{Prune: true}, after("load", "gone"))
	if got := report[0].Missing; !slices.Equal(got, []string{"gone"}) {
		t.Errorf("%+v: missing %v, want gone", report, got)
	}
}

// A concurrent edit can store a cycle. Only the jobs that stay matter.
func TestApplyPrunesJobsThatFormACycle(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	p.apply(t, client.ApplyOptions{}, named("b", "@daily"), after("c", "b"))
	cycle := after("b", "c")
	entry, revision, err := p.store.Jobs().Read(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	d := entry.Definition
	d.Job, d.Nonce = cycle.WithDefaults(), "cycle"
	if _, err := p.store.Jobs().Write(t.Context(), d, revision); err != nil {
		t.Fatal(err)
	}
	if got, want := actions(p.apply(t, client.ApplyOptions{Prune: true}, named("a", "@daily"), after("d", "a"))), "create a, create d, delete c, delete b"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
