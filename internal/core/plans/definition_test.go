package plans_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/schedule/tzdata"
	"github.com/cronce-io/cronce/job"
)

// registry stands in for the broker: it assigns revisions and times to entries.
type registry struct {
	t     *testing.T
	entry *plans.Entry
	now   time.Time
}

func newRegistry(t *testing.T) *registry {
	return &registry{t: t, now: time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)}
}

// apply advances the time by a minute and upserts a definition through the wire format.
func (r *registry) apply(j job.Job, owner, node string, force bool) plans.Change {
	r.t.Helper()
	next, change, err := plans.Upsert(r.entry, j, owner, node, force)
	if err != nil {
		r.t.Fatal(err)
	}
	r.now = r.now.Add(time.Minute)
	if change == plans.Changed {
		r.store(next)
	}
	return change
}

func (r *registry) store(d plans.Definition) {
	r.t.Helper()
	data, err := json.Marshal(d)
	if err != nil {
		r.t.Fatal(err)
	}
	revision := uint64(1)
	if r.entry != nil {
		revision = r.entry.Revision + 1
	}
	e, err := plans.DecodeEntry(data, revision, r.now)
	if err != nil {
		r.t.Fatal(err)
	}
	r.entry = &e
}

func report(schedule string) job.Job { return job.Job{Name: "report", Schedule: schedule} }

func TestAnEqualDefinitionWritesNothing(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	j := report("0 7 * * *")
	j.Payload = json.RawMessage(`{"a": 1}`)
	if c := r.apply(j, "file", "A", false); c != plans.Changed {
		t.Fatalf("first: %v", c)
	}
	same := j.WithDefaults() // explicit defaults, other white space, another node
	same.Payload = json.RawMessage("{\n\"a\":1}")
	if c := r.apply(same, "code", "B", false); c != plans.Unchanged {
		t.Errorf("an equal definition: %v, want unchanged", c)
	}
}

func TestANewPlanBeginsWithItsEntryAndTheOldOneEndsThere(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	r.apply(report("0 7 * * *"), "file", "A", false)
	first := r.now
	r.apply(report("0 8 * * *"), "file", "A", false)
	second := r.now
	plans := r.entry.Plans()
	if len(plans) != 2 {
		t.Fatalf("%d plans, want 2", len(plans))
	}
	old, now := plans[0], plans[1]
	if old.Plan.Schedule != "0 7 * * *" || !old.From.Equal(first) || !old.To.Equal(second) {
		t.Errorf("old plan %+v, want from %v to %v", old, first, second)
	}
	if now.Plan.Schedule != "0 8 * * *" || !now.From.Equal(second) || !now.To.IsZero() {
		t.Errorf("new plan %+v, want from %v on", now, second)
	}
}

func TestAnEditOfAnythingButThePlanDoesNotMoveTheEffectiveTime(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	r.apply(report("0 7 * * *"), "file", "A", false)
	first := r.now
	edited := report("0 7 * * *")
	edited.Timeout = time.Minute
	if c := r.apply(edited, "file", "A", false); c != plans.Changed {
		t.Fatalf("the edit: %v", c)
	}
	if !r.entry.Since().Equal(first) || len(r.entry.Past) != 0 {
		t.Errorf("since %v with %d past plans, want %v and none", r.entry.Since(), len(r.entry.Past), first)
	}
	// When a new plan is applied after that, the old one still has its own beginning.
	r.apply(report("0 8 * * *"), "file", "A", false)
	if past := r.entry.Past; len(past) != 1 || !past[0].From.Equal(first) {
		t.Errorf("past %+v, want one plan from %v", past, first)
	}
}

// Plans that differ only in their notation are equal.
func TestTheSameInstantInAnotherZoneIsNoEdit(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	berlin, err := tzdata.Load("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	j := report("0 7 * * *")
	j.From, j.Exclude = time.Date(2026, 1, 1, 0, 0, 0, 0, berlin), []string{}
	r.apply(j, "code", "A", false)
	since := r.now
	j.From, j.Exclude = j.From.UTC(), nil
	if c := r.apply(j, "code", "B", false); c != plans.Unchanged {
		t.Errorf("the same plan: %v, want unchanged", c)
	}
	j.Payload = json.RawMessage("1")
	r.apply(j, "code", "B", false)
	if !r.entry.Since().Equal(since) {
		t.Errorf("a payload moved the plan's beginning to %v", r.entry.Since())
	}
}

// An old pod in a crash loop must not revert an edit. An operator can revert it by force.
func TestASupersededDefinitionComesBackOnlyByForce(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	older, newer := report("0 7 * * *"), report("0 8 * * *")
	r.apply(older, "file", "old pod", false)
	r.apply(newer, "file", "new pod", false)
	if c := r.apply(older, "file", "old pod", false); c != plans.Superseded {
		t.Fatalf("the old pod again: %v, want superseded", c)
	}
	if c := r.apply(older, "file", "another", true); c != plans.Changed {
		t.Fatalf("by force: %v, want changed", c)
	}
	if c := r.apply(newer, "file", "new pod", false); c != plans.Superseded {
		t.Errorf("the new pod again: %v, want superseded now", c)
	}
	if c := r.apply(older, "file", "another", false); c != plans.Unchanged {
		t.Errorf("what stands there: %v, want unchanged", c)
	}
}

func TestAnOperatorsEditStandsOverFiles(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	r.apply(report("0 7 * * *"), "file", "A", false)
	r.apply(report("0 9 * * *"), "operator", "cli", true)
	for _, force := range []bool{false, true} {
		if c := r.apply(report("0 10 * * *"), "file", "A", force); c != plans.Held {
			t.Errorf("a file against an operator, force %v: %v, want held", force, c)
		}
	}
}

func TestAnUpsertTouchesNoPauseAndKeepsUnknownFields(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	r.apply(report("0 7 * * *"), "file", "A", false)
	d := r.entry.Definition
	d.Paused, d.Extra = true, codec.Extra{"colour": json.RawMessage(`"red"`)}
	r.store(d)
	r.apply(report("0 8 * * *"), "file", "A", false)
	if !r.entry.Paused || string(r.entry.Extra["colour"]) != `"red"` {
		t.Errorf("paused=%v extra=%v, want both kept", r.entry.Paused, r.entry.Extra)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	for i := range 100 {
		j := report([]string{"0 7 * * *", "0 8 * * *"}[i%2])
		j.Timeout = time.Duration(i+1) * time.Second
		r.apply(j, "file", "A", false)
	}
	if len(r.entry.Past) != 20 || len(r.entry.Superseded) != 50 {
		t.Errorf("%d past plans and %d superseded contents, want 20 and 50", len(r.entry.Past), len(r.entry.Superseded))
	}
}

func TestABrokenDefinitionIsRefusedWithItsReason(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]error{
		`{"v":2}`: job.ErrVersion,
		`{`:       job.ErrInvalid,
		`{"v":1,"job":{"name":"report","queue":"default","attempts":3,"backoff":"1s","max_backoff":"1m","overlap":"allow","catch_up":"latest","catch_up_max":1,"plan":{"schedule":"61 * * * *","timezone":"UTC","dst_gap":"after","dst_overlap":"first"}}}`: job.ErrInvalid,
		`{"v":1,"job":{"name":"report","plan":{"schedule":"1 * * * *","timezone":"UTC","dst_gap":"after","dst_overlap":"first","moon":"full"}}}`:                                                                                                            job.ErrVersion,
		`{"v":1,"job":{"name":"report"},"past":[{"from":"2026-11-21T07:00:00Z","plan":{"schedule":"1 * * * *","timezone":"UTC","moon":"full"}}]}`:                                                                                                           job.ErrVersion,
	} {
		if _, err := plans.DecodeEntry([]byte(data), 1, time.Now()); !errors.Is(err, want) {
			t.Errorf("%.30s: %v, want %v", data, err, want)
		}
	}
}

func TestValidateNamesEverythingThatIsWrong(t *testing.T) {
	t.Parallel()
	err := job.Job{
		Name: "a b", Schedule: "61 * * * *", Queue: "q.", Timeout: -1, Overlap: "sometimes",
		Retry: job.Retry{Attempts: -1}, CatchUp: job.CatchUp{Policy: "maybe", Max: 5000}, Payload: json.RawMessage("{"),
	}.Validate()
	if !errors.Is(err, job.ErrInvalid) {
		t.Fatalf("%v", err)
	}
	for _, part := range []string{`"a b"`, `"61 * * * *"`, `"q."`, "timeout", `"sometimes"`, "attempts -1", `"maybe"`, "5000", "not JSON"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not name %s:\n%v", part, err)
		}
	}
}

func TestASlotFollowsFromOthersIfItsJobHasAfterAndNoScheduleHasItsInstant(t *testing.T) {
	r := newRegistry(t)
	r.apply(report("@hourly"), plans.OwnerFile, "n1", false)
	scheduled, chained := r.now.Add(time.Second), r.now.Add(time.Hour)
	if r.entry.IsChained(job.NewSlot("report", chained)) {
		t.Error("a slot of a job without after follows")
	}
	r.apply(job.Job{Name: "report", After: []string{"extract"}}, plans.OwnerFile, "n1", false)
	for slot, want := range map[job.Slot]bool{
		job.NewSlot("report", scheduled):                        false,
		job.NewSlot("report", chained):                          true,
		job.NewSlot("report", chained).WithShard(1, 2):          true,
		job.NewSlot("report", scheduled.Add(-365*24*time.Hour)): true, // older than the job
		{Job: "report", Token: "k"}:                             false,
	} {
		if r.entry.IsChained(slot) != want {
			t.Errorf("%s follows: %v, want %v", slot, !want, want)
		}
	}
}
