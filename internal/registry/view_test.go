package registry_test

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/cronce-io/cronce/internal/registry"
	"github.com/cronce-io/cronce/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// leader answers for the registry's leader.
type leader map[string]job.Entry

func (l leader) Read(_ context.Context, name string) (job.Entry, uint64, error) {
	e, ok := l[name]
	if !ok {
		return job.Entry{}, 0, job.ErrNotFound
	}
	return e, e.Revision, nil
}

func entry(name string, revision uint64) job.Entry {
	return job.Entry{Revision: revision, Definition: job.Definition{Job: job.Job{Name: name}}}
}

func TestADefinitionIsNeverOlderThanTheSlotItIsWantedFor(t *testing.T) {
	t.Parallel()
	v := registry.NewView(leader{"report": entry("report", 9)})
	v.Apply(job.RegistryEvent{Name: "report", Revision: 5, Entry: entry("report", 5)})
	if e, err := v.Lookup(t.Context(), "report", 5); err != nil || e.Revision != 5 {
		t.Errorf("as of 5: revision %d, %v; want the copy's", e.Revision, err)
	}
	if e, err := v.Lookup(t.Context(), "report", 9); err != nil || e.Revision != 9 {
		t.Errorf("as of 9: revision %d, %v; want the leader's", e.Revision, err)
	}
}

// A slot is cancelled when its job is deleted, so a copy that lags must not say
// so.
func TestDeletedIsSaidByTheLeaderAndNotByALaggingCopy(t *testing.T) {
	t.Parallel()
	v := registry.NewView(leader{"new": entry("new", 7)})
	v.Apply(job.RegistryEvent{Name: "old", Revision: 6, Deleted: true})
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
	v := registry.NewView(leader{})
	v.Apply(job.RegistryEvent{Name: "good", Revision: 1, Entry: entry("good", 1)})
	v.Apply(job.RegistryEvent{Name: "bad", Revision: 2, Err: job.ErrVersion})
	if _, err := v.Lookup(t.Context(), "bad", 1); !errors.Is(err, job.ErrVersion) {
		t.Errorf("bad: %v", err)
	}
	if _, err := v.Lookup(t.Context(), "good", 2); err != nil {
		t.Errorf("good: %v", err)
	}
	v.Apply(job.RegistryEvent{Name: "bad", Revision: 3, Entry: entry("bad", 3)})
	if e, err := v.Lookup(t.Context(), "bad", 3); err != nil || e.Revision != 3 {
		t.Errorf("mended: %v, %v", e, err)
	}
}

func TestReadyComesOnceAndStays(t *testing.T) {
	t.Parallel()
	v := registry.NewView(leader{})
	select {
	case <-v.Ready():
		t.Fatal("ready before anything was seen")
	default:
	}
	v.Apply(job.RegistryEvent{Ready: true})
	v.Apply(job.RegistryEvent{Ready: true}) // listed again after an outage
	<-v.Ready()
}
