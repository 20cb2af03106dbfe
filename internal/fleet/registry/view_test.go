package registry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/fleet/registry"
	"github.com/cronce-io/cronce/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// leader is the leader of the registry.
type leader map[string]plans.Entry

func (l leader) Read(_ context.Context, name string) (plans.Entry, uint64, error) {
	e, ok := l[name]
	if !ok {
		return plans.Entry{}, 0, job.ErrNotFound
	}
	return e, e.Revision, nil
}

// all says that every job has a handler.
func all(string) bool { return true }

func entry(name string, revision uint64) plans.Entry {
	return plans.Entry{Revision: revision, Definition: plans.Definition{Job: job.Job{Name: name}}}
}

func TestADefinitionIsNeverOlderThanItsSlot(t *testing.T) {
	t.Parallel()
	v := registry.NewView(leader{"report": entry("report", 9)}, all)
	v.Apply(plans.RegistryEvent{Name: "report", Revision: 5, Entry: entry("report", 5)})
	if e, err := v.Lookup(t.Context(), "report", 5); err != nil || e.Revision != 5 {
		t.Errorf("as of 5: revision %d, %v; want that of the watch", e.Revision, err)
	}
	if e, err := v.Lookup(t.Context(), "report", 9); err != nil || e.Revision != 9 {
		t.Errorf("as of 9: revision %d, %v; want the leader's", e.Revision, err)
	}
}

// Job a was edited at revisions 5 and 8. A watch that catches up delivers job b, at revision 7, before
// job a.
func TestADefinitionIsNotTakenForNewerWhileTheWatchCatchesUp(t *testing.T) {
	t.Parallel()
	v := registry.NewView(leader{"a": entry("a", 8)}, all)
	v.Apply(plans.RegistryEvent{Name: "a", Revision: 3, Entry: entry("a", 3)})
	v.Apply(plans.RegistryEvent{Ready: true, Revision: 3})
	v.Apply(plans.RegistryEvent{Name: "b", Revision: 7, Entry: entry("b", 7)})
	if e, err := v.Lookup(t.Context(), "a", 5); err != nil || e.Revision != 8 {
		t.Errorf("as of 5: revision %d, %v; want the leader's", e.Revision, err)
	}
}

// A slot is cancelled if its job is deleted. So only the leader may say that it is.
func TestADeletionIsNotTakenFromALaggingWatch(t *testing.T) {
	t.Parallel()
	v := registry.NewView(leader{"new": entry("new", 7)}, all)
	v.Apply(plans.RegistryEvent{Name: "old", Revision: 6, Deleted: true})
	v.Apply(plans.RegistryEvent{Settled: true, Revision: 6})
	if _, err := v.Lookup(t.Context(), "old", 6); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("deleted: %v, want not found", err)
	}
	if e, err := v.Lookup(t.Context(), "new", 3); err != nil || e.Revision != 7 {
		t.Errorf("a job that the watch has not delivered: %v, %v; want the leader's answer", e, err)
	}
	if _, err := v.Lookup(t.Context(), "old", 8); err == nil || errors.Is(err, job.ErrNotFound) {
		t.Errorf("the View is older than the slot: %v, want an error other than not found", err)
	}
}

func TestABrokenDefinitionDisablesItsJobOnly(t *testing.T) {
	t.Parallel()
	v := registry.NewView(leader{}, all)
	v.Apply(plans.RegistryEvent{Name: "good", Revision: 1, Entry: entry("good", 1)})
	v.Apply(plans.RegistryEvent{Name: "bad", Revision: 2, Err: job.ErrVersion})
	v.Apply(plans.RegistryEvent{Settled: true, Revision: 2})
	if _, err := v.Lookup(t.Context(), "bad", 1); !errors.Is(err, job.ErrVersion) {
		t.Errorf("bad: %v", err)
	}
	if _, err := v.Lookup(t.Context(), "good", 2); err != nil {
		t.Errorf("good: %v", err)
	}
	v.Apply(plans.RegistryEvent{Name: "bad", Revision: 3, Entry: entry("bad", 3)})
	if e, err := v.Lookup(t.Context(), "bad", 3); err != nil || e.Revision != 3 {
		t.Errorf("corrected: %v, %v", e, err)
	}
}

func TestReadyStaysClosed(t *testing.T) {
	t.Parallel()
	v := registry.NewView(leader{}, all)
	select {
	case <-v.Ready():
		t.Fatal("ready before the first event")
	default:
	}
	v.Apply(plans.RegistryEvent{Ready: true})
	v.Apply(plans.RegistryEvent{Ready: true}) // listed again after an outage
	<-v.Ready()
}

// counting is a leader that counts the reads.
type counting struct {
	leader
	reads int
}

func (c *counting) Read(ctx context.Context, name string) (plans.Entry, uint64, error) {
	c.reads++
	return c.leader.Read(ctx, name)
}

func TestTheViewKeepsFewJobsWithoutHandlers(t *testing.T) {
	t.Parallel()
	l := &counting{leader: leader{"mine": entry("mine", 1)}}
	v := registry.NewView(l, func(name string) bool { return name == "mine" })
	v.Apply(plans.RegistryEvent{Name: "mine", Revision: 1, Entry: entry("mine", 1)})
	const others = 3000
	for i := range others {
		name := fmt.Sprint("other", i)
		l.leader[name] = entry(name, uint64(2+i))
		v.Apply(plans.RegistryEvent{Name: name, Revision: uint64(2 + i), Entry: l.leader[name]})
	}
	for range 2 {
		for i := range others {
			if e, err := v.Lookup(t.Context(), fmt.Sprint("other", i), uint64(2+i)); err != nil || e.Revision != uint64(2+i) {
				t.Fatalf("other%d: revision %d, %v", i, e.Revision, err)
			}
		}
	}
	if l.reads != 2*others {
		t.Errorf("%d reads of %d jobs that were looked up twice: want that most are not kept", l.reads, others)
	}
	l.reads = 0
	for range 10 {
		for _, name := range []string{"mine", "other2999"} {
			if _, err := v.Lookup(t.Context(), name, 1); err != nil {
				t.Error(err)
			}
		}
	}
	if l.reads > 0 {
		t.Errorf("%d reads of a job with a handler, and of the last one that was looked up", l.reads)
	}
}

// A handler may be added while the process runs.
func TestAJobThatGetsItsHandlerAfterALookupIsKept(t *testing.T) {
	t.Parallel()
	l := &counting{leader: leader{}}
	handled := ""
	v := registry.NewView(l, func(name string) bool { return name == handled })
	lookup := func(name string) {
		t.Helper()
		l.leader[name] = entry(name, 1)
		if _, err := v.Lookup(t.Context(), name, 1); err != nil {
			t.Fatal(err)
		}
	}
	lookup("mine")
	handled = "mine"
	v.Apply(plans.RegistryEvent{Name: "mine", Revision: 1, Entry: entry("mine", 1)})
	for i := range 3000 {
		lookup(fmt.Sprint("other", i))
	}
	if e, ok := v.Entry("mine"); !ok || e.Revision != 1 {
		t.Error("the definition of a job with a handler was dropped")
	}
}

// The View follows edits and the deletion of a job from its first lookup on.
func TestAJobThatWasLookedUpIsFollowed(t *testing.T) {
	t.Parallel()
	l := leader{"other": entry("other", 5)}
	v := registry.NewView(l, func(string) bool { return false })
	v.Apply(plans.RegistryEvent{Name: "other", Revision: 5, Entry: entry("other", 5)})
	lookup := func(atLeast, want uint64) {
		t.Helper()
		e, err := v.Lookup(t.Context(), "other", atLeast)
		if want == 0 && !errors.Is(err, job.ErrNotFound) || want > 0 && (err != nil || e.Revision != want) {
			t.Errorf("as of %d: revision %d, %v; want %d", atLeast, e.Revision, err, want)
		}
	}
	lookup(5, 5)
	l["other"] = entry("other", 7)
	lookup(7, 7) // before the watch has delivered it
	v.Apply(plans.RegistryEvent{Name: "other", Revision: 7, Entry: entry("other", 7)})
	lookup(5, 7)
	delete(l, "other")
	lookup(7, 7) // the watch has not delivered the deletion
	v.Apply(plans.RegistryEvent{Name: "other", Revision: 8, Deleted: true})
	v.Apply(plans.RegistryEvent{Settled: true, Revision: 8})
	lookup(7, 0)
}

// A new watch does not deliver earlier deletions. The View knows them when the listing is complete.
// Until then, After returns what it returned before.
func TestAJobThatANewWatchDoesNotDeliverIsDeleted(t *testing.T) {
	t.Parallel()
	v := registry.NewView(leader{}, func(string) bool { return false })
	gone, stays := entry("gone", 4), entry("stays", 5)
	gone.Job.After, stays.Job.After = []string{"load"}, []string{"load"}
	deliver := func(e plans.Entry) {
		v.Apply(plans.RegistryEvent{Name: e.Job.Name, Revision: e.Revision, Entry: e})
	}
	deliver(gone)
	deliver(stays)
	v.Apply(plans.RegistryEvent{Ready: true})
	v.Restart()
	select {
	case <-v.Ready():
		t.Error("ready before the new watch has delivered all jobs")
	default:
	}
	deliver(stays)
	if after := v.After("load"); len(after) != 2 {
		t.Errorf("during the listing %d jobs run after load, want both", len(after))
	}
	v.Apply(plans.RegistryEvent{Ready: true, Revision: 6})
	<-v.Ready()
	if after := v.After("load"); len(after) != 1 || after[0].Job.Name != "stays" {
		t.Errorf("%v run after load, want only stays", after)
	}
	if _, err := v.Lookup(t.Context(), "gone", 4); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("%v, want the leader's answer", err)
	}
}

// Many other jobs are looked up.
func TestAJobThatRunsAfterAnotherIsNeverDropped(t *testing.T) {
	t.Parallel()
	l := leader{"next": entry("next", 1)}
	v := registry.NewView(l, func(string) bool { return false })
	if _, err := v.Lookup(t.Context(), "next", 1); err != nil { // before it runs after another job
		t.Fatal(err)
	}
	next := entry("next", 2)
	next.Job.After = []string{"load"}
	v.Apply(plans.RegistryEvent{Name: "next", Revision: 2, Entry: next})
	for i := range 5000 {
		name := fmt.Sprint("other", i)
		l[name] = entry(name, 1)
		if _, err := v.Lookup(t.Context(), name, 1); err != nil {
			t.Fatal(err)
		}
	}
	if after := v.After("load"); len(after) != 1 || after[0].Revision != 2 {
		t.Errorf("%v run after load, want next", after)
	}
}
