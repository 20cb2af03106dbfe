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

// leader answers for the registry's leader.
type leader map[string]plans.Entry

func (l leader) Read(_ context.Context, name string) (plans.Entry, uint64, error) {
	e, ok := l[name]
	if !ok {
		return plans.Entry{}, 0, job.ErrNotFound
	}
	return e, e.Revision, nil
}

// all jobs have handlers.
func all(string) bool { return true }

func entry(name string, revision uint64) plans.Entry {
	return plans.Entry{Revision: revision, Definition: plans.Definition{Job: job.Job{Name: name}}}
}

func TestADefinitionIsNeverOlderThanTheSlotItIsWantedFor(t *testing.T) {
	t.Parallel()
	v := registry.NewView(leader{"report": entry("report", 9)}, all)
	v.Apply(plans.RegistryEvent{Name: "report", Revision: 5, Entry: entry("report", 5)})
	if e, err := v.Lookup(t.Context(), "report", 5); err != nil || e.Revision != 5 {
		t.Errorf("as of 5: revision %d, %v; want the copy's", e.Revision, err)
	}
	if e, err := v.Lookup(t.Context(), "report", 9); err != nil || e.Revision != 9 {
		t.Errorf("as of 9: revision %d, %v; want the leader's", e.Revision, err)
	}
}

// A watch that catches up delivers job b at revision 7 before job a, which
// was edited at 5 and again at 8.
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

// A slot is cancelled when its job is deleted, so a copy that lags must not say
// so.
func TestDeletedIsSaidByTheLeaderAndNotByALaggingCopy(t *testing.T) {
	t.Parallel()
	v := registry.NewView(leader{"new": entry("new", 7)}, all)
	v.Apply(plans.RegistryEvent{Name: "old", Revision: 6, Deleted: true})
	v.Apply(plans.RegistryEvent{Settled: true, Revision: 6})
	if _, err := v.Lookup(t.Context(), "old", 6); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("deleted: %v, want not found", err)
	}
	if e, err := v.Lookup(t.Context(), "new", 3); err != nil || e.Revision != 7 {
		t.Errorf("not heard of yet: %v, %v; want the leader's word", e, err)
	}
	if _, err := v.Lookup(t.Context(), "old", 8); err == nil || errors.Is(err, job.ErrNotFound) {
		t.Errorf("the registry as known is older than the slot's: %v, want no answer", err)
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
		t.Errorf("mended: %v, %v", e, err)
	}
}

func TestReadyComesOnceAndStays(t *testing.T) {
	t.Parallel()
	v := registry.NewView(leader{}, all)
	select {
	case <-v.Ready():
		t.Fatal("ready before anything was seen")
	default:
	}
	v.Apply(plans.RegistryEvent{Ready: true})
	v.Apply(plans.RegistryEvent{Ready: true}) // listed again after an outage
	<-v.Ready()
}

// counting is a leader that counts what it is asked.
type counting struct {
	leader
	asked int
}

func (c *counting) Read(ctx context.Context, name string) (plans.Entry, uint64, error) {
	c.asked++
	return c.leader.Read(ctx, name)
}

func TestOfJobsWithoutHandlersOnlyTheLatestAreKept(t *testing.T) {
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
	if l.asked != 2*others {
		t.Errorf("the leader was asked %d times for %d jobs, twice each: want that most are not kept", l.asked, others)
	}
	l.asked = 0
	for range 10 {
		for _, name := range []string{"mine", "other2999"} {
			if _, err := v.Lookup(t.Context(), name, 1); err != nil {
				t.Error(err)
			}
		}
	}
	if l.asked > 0 {
		t.Errorf("the leader was asked %d times for a job with a handler and the one that was asked for last", l.asked)
	}
}

// What was asked for is followed from then on: an edit, and a deletion.
func TestAJobThatWasAskedForIsFollowed(t *testing.T) {
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
	lookup(7, 7) // before the watch has told
	v.Apply(plans.RegistryEvent{Name: "other", Revision: 7, Entry: entry("other", 7)})
	lookup(5, 7)
	delete(l, "other")
	lookup(7, 7) // not known yet
	v.Apply(plans.RegistryEvent{Name: "other", Revision: 8, Deleted: true})
	v.Apply(plans.RegistryEvent{Settled: true, Revision: 8})
	lookup(7, 0)
}

// A watch that begins anew does not tell what was deleted meanwhile: it is known
// when it has told the rest, and until then what follows from a job is what was known.
func TestWhatANewWatchDoesNotTellIsGoneWhenItIsReady(t *testing.T) {
	t.Parallel()
	v := registry.NewView(leader{}, func(string) bool { return false })
	gone, stays := entry("gone", 4), entry("stays", 5)
	gone.Job.After, stays.Job.After = []string{"load"}, []string{"load"}
	tell := func(e plans.Entry) {
		v.Apply(plans.RegistryEvent{Name: e.Job.Name, Revision: e.Revision, Entry: e})
	}
	tell(gone)
	tell(stays)
	v.Apply(plans.RegistryEvent{Ready: true})
	v.Restart()
	select {
	case <-v.Ready():
		t.Error("ready before the new watch has told all")
	default:
	}
	tell(stays)
	if after := v.After("load"); len(after) != 2 {
		t.Errorf("during the listing %d jobs come after, want both", len(after))
	}
	v.Apply(plans.RegistryEvent{Ready: true, Revision: 6})
	<-v.Ready()
	if after := v.After("load"); len(after) != 1 || after[0].Job.Name != "stays" {
		t.Errorf("%v come after; want the one that is still there", after)
	}
	if _, err := v.Lookup(t.Context(), "gone", 4); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("%v, want the leader's word", err)
	}
}

// What follows from a job is known however many were asked for since.
func TestAJobThatFollowsAnotherIsNeverDropped(t *testing.T) {
	t.Parallel()
	l := leader{"next": entry("next", 1)}
	v := registry.NewView(l, func(string) bool { return false })
	if _, err := v.Lookup(t.Context(), "next", 1); err != nil { // a guest before it follows anything
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
		t.Errorf("%v come after; want the one", after)
	}
}
