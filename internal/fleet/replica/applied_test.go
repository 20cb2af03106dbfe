package replica

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

func TestAnotherContentIsReportedOnce(t *testing.T) {
	t.Parallel()
	ours, theirs := job.Job{Name: "report", Schedule: "0 7 * * *"}, job.Job{Name: "report", Schedule: "0 8 * * *"}
	third := job.Job{Name: "report", Schedule: "0 9 * * *"}
	own := newOwnJobs([]job.Job{ours})
	put := func(stored job.Job, revision uint64) { own.noteApplied(own.byName["report"], stored, revision) }
	entry := func(j job.Job, revision uint64) plans.Entry {
		return plans.Entry{Definition: plans.Definition{Job: j}, Revision: revision}
	}
	if own.noteReplaced(entry(theirs, 9)) || own.isRemoved(plans.RegistryEvent{Name: "report", Deleted: true, Revision: 9}) {
		t.Error("the replica reports a job that it has not applied")
	}
	put(ours, 10)
	for _, step := range []struct {
		what string
		plans.Entry
		want bool
	}{
		{"an older definition, delivered late", entry(theirs, 9), false},
		{"its own write", entry(ours, 10), false},
		{"its own content, paused", entry(ours, 11), false},
		{"that of another", entry(theirs, 12), true},
		{"the same again", entry(theirs, 12), false},
		{"the same, paused", entry(theirs, 13), false},
		{"a third one", entry(third, 14), true},
		{"its own again", entry(ours, 15), false},
		{"that of the other again", entry(theirs, 16), true},
	} {
		if got := own.noteReplaced(step.Entry); got != step.want {
			t.Errorf("%s: reported %v, want %v", step.what, got, step.want)
		}
	}
	// What Apply has reported is not reported again.
	put(third, 20)
	if own.noteReplaced(entry(third, 21)) || !own.noteReplaced(entry(theirs, 22)) {
		t.Error("after another Apply the wrong definition is reported")
	}
	if own.isRemoved(plans.RegistryEvent{Name: "report", Deleted: true, Revision: 19}) || !own.isRemoved(plans.RegistryEvent{Name: "report", Deleted: true, Revision: 23}) {
		t.Error("the wrong removal is reported")
	}
}

// The watch may report a write before its answer has arrived: after a reload the content then differs
// from what was applied before.
func TestOwnWriteIsNoDefinitionOfAnotherNode(t *testing.T) {
	t.Parallel()
	before, mine := job.Job{Name: "report", Schedule: "0 7 * * *"}, job.Job{Name: "report", Schedule: "0 8 * * *"}
	var log strings.Builder
	r := &Replica{identity: "a-1", log: slog.New(slog.NewTextHandler(&log, nil)), own: newOwnJobs([]job.Job{before})}
	r.own.noteApplied(r.own.byName["report"], before, 10)
	now, _ := r.own.replace([]job.Job{mine})
	r.logReplaced(plans.Entry{Definition: plans.Definition{Job: mine, Node: "a-1"}, Revision: 11})
	r.own.noteApplied(now[0], mine, 11)
	if log.String() != "" {
		t.Errorf("log:\n%s", &log)
	}
	if r.logReplaced(plans.Entry{Definition: plans.Definition{Job: before, Node: "b-1"}, Revision: 12}); !strings.Contains(log.String(), "two nodes define this job differently") {
		t.Errorf("the definition of another node is not reported:\n%s", &log)
	}
}

// The new watch does not deliver the removal of a job that was removed between the two.
func TestAJobThatIsRemovedWhileTheProducerStartsOverIsForgotten(t *testing.T) {
	t.Parallel()
	store := kvtest.Open(t, natstest.Run(t).JetStream(), kv.Options{})
	r := New(Config{Store: store})
	watch := func() {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		_ = watchedRegistry{r}.Watch(ctx, func(e plans.RegistryEvent) {
			if e.Ready {
				stop()
			}
		})
		if t.Context().Err() != nil {
			t.Fatal("the watch did not get ready")
		}
	}
	d, _, err := plans.Upsert(nil, job.Job{Name: "load", After: []string{"extract"}}, plans.OwnerOperator, "test", true)
	if err != nil {
		t.Fatal(err)
	}
	d.Nonce = "test"
	revision, err := store.Jobs().Write(t.Context(), d, 0)
	if err != nil {
		t.Fatal(err)
	}
	watch()
	if n := len(r.view.After("extract")); n != 1 {
		t.Fatalf("%d jobs run after extract, want 1", n)
	}
	if err := store.Jobs().Delete(t.Context(), "load", revision); err != nil {
		t.Fatal(err)
	}
	watch()
	if after := r.view.After("extract"); len(after) != 0 {
		t.Errorf("%v run after extract, want none: the job was removed", after)
	}
}

// eventObserver notes events.
type eventObserver struct {
	noObserver

	events []job.Event
}

func (o *eventObserver) Event(e job.Event) { o.events = append(o.events, e) }

func TestAnObserverGetsAnEventAsItIsPublished(t *testing.T) {
	t.Parallel()
	store := kvtest.Open(t, natstest.Run(t).JetStream(), kv.Options{})
	observer := &eventObserver{}
	New(Config{Store: store, Observer: observer}).emit(job.Event{Kind: job.EventFenced, Node: "a", Peer: "b"})
	if len(observer.events) != 1 || observer.events[0].V != codec.Version || observer.events[0].Time.IsZero() {
		t.Errorf("the observer got %+v, want one event with its version and time", observer.events)
	}
}

func TestAReadThatTakesLongerThanItsFirstLimitIsFinished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		r := &Replica{log: slog.New(slog.NewTextHandler(&log, nil))}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err := r.untilAnswered(ctx, "read the jobs", func(ctx context.Context) error {
			select {
			case <-time.After(3 * answerTimeout):
				return nil
			case <-ctx.Done():
				return job.ErrUnknown
			}
		})
		if n := strings.Count(log.String(), "still waiting for an answer"); err != nil || n != 2 {
			t.Errorf("%v after %d reports, want 2 of them and the answer", err, n)
		}
	})
}

// The answer to the write may come after the job was dropped.
func TestAJobThatIsDroppedWhileItIsAppliedIsNotComparedWithLaterDefinitions(t *testing.T) {
	t.Parallel()
	r, log := loggingReplica(t)
	hourly, daily := job.Job{Name: "sync", Schedule: "@hourly"}, job.Job{Name: "sync", Schedule: "@daily"}
	r.Add(hourly)
	taken := r.own.list(ownJob.waits)
	r.Drop("sync")
	if err := r.applyWaiting(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	r.noteForeign(daily)
	if log.String() != "" {
		t.Errorf("log:\n%s", log)
	}
	r.Add(daily)
	if err := r.applyWaiting(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	if name, _ := r.own.missing([]string{"sync"}); name == "" {
		t.Error("the job counts as applied although only the dropped one was")
	}
	if err := r.applyWaiting(t.Context(), r.own.list(ownJob.waits)); err != nil {
		t.Fatal(err)
	}
	if name, _ := r.own.missing([]string{"sync"}); name != "" {
		t.Error("the job that was added after the drop does not count as applied")
	}
}

func TestAJobThatAReloadHasRemovedIsNotComparedWithLaterDefinitions(t *testing.T) {
	t.Parallel()
	r, log := loggingReplica(t)
	hourly, daily := job.Job{Name: "sync", Schedule: "@hourly"}, job.Job{Name: "sync", Schedule: "@daily"}
	kept := job.Job{Name: "kept", Schedule: "@hourly"}
	for _, jobs := range [][]job.Job{{hourly, kept}, {kept}} {
		if err := r.Apply(t.Context(), jobs, true); err != nil {
			t.Fatal(err)
		}
	}
	r.noteForeign(daily)
	if log.String() != "" {
		t.Errorf("log:\n%s", log)
	}
	kept.Schedule = "@daily"
	if r.noteForeign(kept); !strings.Contains(log.String(), "job=kept") {
		t.Errorf("the definition of another node for a job that was kept is not reported:\n%s", log)
	}
}

// The handlers of this process are then those of the earlier file.
func TestAReloadThatFailsLeavesTheJobsOfTheReplicaAsTheyWere(t *testing.T) {
	t.Parallel()
	r, log := loggingReplica(t)
	report, large := job.Job{Name: "report", Schedule: "@hourly"}, job.Job{Name: "large", Schedule: "@hourly"}
	large.Payload = []byte(`"` + strings.Repeat("x", 2<<20) + `"`) // the server refuses it
	if err := r.Apply(t.Context(), []job.Job{report}, true); err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(t.Context(), []job.Job{large}, true); err == nil {
		t.Fatal("Apply returned no error")
	}
	if jobs := r.own.list(func(ownJob) bool { return true }); len(jobs) != 1 || jobs[0].Name != "report" {
		t.Errorf("to a new registry, the replica would apply %+v; want only job report", jobs)
	}
	log.Reset()
	if r.noteForeign(job.Job{Name: "report", Schedule: "@daily"}); !strings.Contains(log.String(), "job=report") {
		t.Errorf("the definition of another node is not reported:\n%s", log)
	}
}

// loggingReplica returns a replica that does not run, and its log.
func loggingReplica(t *testing.T) (*Replica, *strings.Builder) {
	t.Helper()
	store, err := kv.Open(t.Context(), natstest.Run(t).JetStream(), kv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	log := &strings.Builder{}
	return New(Config{Store: store, Owner: plans.OwnerCode, Logger: slog.New(slog.NewTextHandler(log, nil))}), log
}

// noteForeign notes that another node has stored the job, and then removed it.
func (r *Replica) noteForeign(j job.Job) {
	r.noteRegistry(plans.RegistryEvent{Name: j.Name, Revision: 1000, Entry: plans.Entry{Definition: plans.Definition{Job: j, Node: "b-1"}, Revision: 1000}})
	r.noteRegistry(plans.RegistryEvent{Name: j.Name, Revision: 1001, Deleted: true})
}
