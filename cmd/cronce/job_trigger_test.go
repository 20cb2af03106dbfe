package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

func (f *fixture) waiting(t *testing.T) []stream.WaitingSlot {
	t.Helper()
	var all []stream.WaitingSlot
	for w, err := range f.store.Waiting(t.Context(), stream.WaitingFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	return all
}

func TestJobTrigger(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.now = time.Now()
	f.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}.WithDefaults()})
	in90 := f.now.Add(90 * time.Minute).UTC().Truncate(time.Second)
	later := in90.Format(time.RFC3339)
	for _, step := range []struct {
		args, want string
	}{
		{"--key k", "report:@k is triggered\n"},
		{"--key k", "report:@k was already triggered and is pending: nothing changed\n"},
		{"--key l --at " + later, "report:@l is scheduled for " + later + " (in 1h29m)\n"},
		{"--key l", "report:@l was already scheduled for " + later + " (in 1h29m): nothing changed\n"},
		{"--key p --at 2026-01-01T00:00:00Z", "report:@p is triggered\n"},
	} {
		if got := f.ok(t, append([]string{"job", "trigger", "report"}, strings.Fields(step.args)...)...); got != step.want {
			t.Errorf("%s: %q, want %q", step.args, got, step.want)
		}
	}
	f.record(t, job.Record{Slot: job.Slot{Job: "report", Token: "k"}, Queue: "default", Node: "web1"}, job.Succeeded)
	if got := f.ok(t, "job", "trigger", "report", "--key", "k"); got != "report:@k was already triggered, state succeeded: nothing changed\n" {
		t.Errorf("got %q", got)
	}

	var row map[string]any
	line := f.ok(t, "job", "trigger", "report", "-o", "json")
	if err := json.Unmarshal([]byte(line), &row); err != nil || strings.Count(line, "\n") != 1 {
		t.Fatalf("got %q", line)
	}
	key, _ := row["key"].(string)
	want := map[string]any{"id": "report:@" + key, "job": "report", "key": key, "state": "pending", "new": true, "queue": "default"}
	if fmt.Sprint(row) != fmt.Sprint(want) || len(key) < 20 {
		t.Errorf("got %v, want %v and a random key", row, want)
	}

	out := f.ok(t, "slot", "ls", "--job", "report", "--state", "pending", "-o", "json")
	if want := fmt.Sprintf(`{"id":"report:@l","job":"report","state":"pending","queue":"default","due":"%s"}`, later) + "\n"; !strings.HasSuffix(out, want) || strings.Count(out, "\n") != 3 {
		t.Errorf("slot ls:\n%swant three, the last one\n%s", out, want)
	}
	if out := f.ok(t, "slot", "ls", "--state", "pending"); !strings.Contains(out, "waits for "+later) {
		t.Errorf("slot ls:\n%s", out)
	}
	if out := f.ok(t, "slot", "show", "report:@l"); strings.Contains(out, "published") || !strings.Contains(out, "\n  ordered by  ") {
		t.Errorf("slot show of a run that is not published yet:\n%s", out)
	}
}

func TestJobTriggerTakesAnyPayload(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}.WithDefaults()})
	queue, err := f.store.Slots().Queue(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	big := `"` + strings.Repeat("é", 128<<10-1) + `"`
	for payload, stdin := range map[string]string{
		`{"a": "b\u0000\n\" <*>.$ 'x'"}`: "", "null": "", "-": big,
	} {
		f.stdin = stdin
		f.ok(t, "job", "trigger", "report", "--payload", payload)
		m, err := queue.Next(jetstream.FetchPriorityGroup(layout.WorkerGroup))
		if err != nil {
			t.Fatal(err)
		}
		if want := payload; stdin == "" && string(m.Data()) != want || stdin != "" && string(m.Data()) != stdin {
			t.Errorf("%.40s: delivered %.40q", payload, m.Data())
		}
	}
}

func TestJobTriggerRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}.WithDefaults()})
	for _, c := range []struct {
		code  int
		stdin string
		args  []string
		parts []string
	}{
		{base.ExitUsage, "", nil, []string{"accepts 1 arg", "cronce job trigger --help"}},
		{base.ExitUsage, "", []string{"re*port"}, []string{`"re*port"`}},
		{base.ExitUsage, "", []string{"report", "--key", ""}, []string{"--key", "empty"}},
		{base.ExitUsage, "", []string{"report", "--key", "a\x1b[2Jb"}, []string{"key", "control character"}},
		{base.ExitUsage, "", []string{"report", "--at", "tomorrow"}, []string{"--at", "tomorrow", "RFC 3339"}},
		{base.ExitUsage, "", []string{"report", "--at", ""}, []string{"--at", "empty"}},
		{base.ExitUsage, "", []string{"report", "--at", "2300-01-01T00:00:00Z"}, []string{"2200"}},
		{base.ExitUsage, "", []string{"report", "--payload", "{x}"}, []string{"payload", "not JSON"}},
		{base.ExitUsage, "", []string{"report", "--payload", "-"}, []string{"standard input is empty"}},
		{base.ExitUsage, strings.Repeat("1", 1<<20), []string{"report", "--payload", "-"}, []string{"payload", "larger than 256 KiB"}},
		{base.ExitFailed, "", []string{"raport"}, []string{"no job named raport", "report"}},
	} {
		f.stdin = c.stdin
		f.run(t, append([]string{"job", "trigger"}, c.args...)...).oneError(t, c.code, c.parts...)
	}
	if all := f.waiting(t); len(all) > 0 {
		t.Errorf("triggered %+v", all)
	}
}

func TestJobBackfill(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	hour := time.Now().UTC().Truncate(time.Hour)
	stamp := func(hours int) string { return hour.Add(time.Duration(hours) * time.Hour).Format(time.RFC3339) }
	f.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "0 * * * *"}.WithDefaults(), Since: hour.Add(-100 * time.Hour)})
	f.record(t, job.Record{Slot: job.NewSlot("report", hour.Add(-2*time.Hour)), Node: "web1"}, job.Missed)
	f.record(t, job.Record{Slot: job.NewSlot("report", hour.Add(-time.Hour)), Node: "web1"}, job.Succeeded)
	f.publish(t, "default", core.Message{Slot: job.NewSlot("report", hour.Add(-3*time.Hour))})

	f.run(t, "job", "backfill", "report", "--from", stamp(-50), "--to", stamp(0)).
		oneError(t, base.ExitFailed, "of 50 slots are older than the horizon of 24h0m0s", "--clip")
	args := []string{"job", "backfill", "report", "--from", stamp(-10), "--to", stamp(0), "--rate", "100"}
	want := "report has 10 slots from " + stamp(-10) + " to " + stamp(0) + "\n" +
		"  7 published\n" +
		"  1 already missed, which is final: cronce slot retry ID reopens one\n" +
		"  1 already succeeded\n" +
		"  1 already pending\n"
	if got := f.ok(t, args...); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	want = fmt.Sprintf(`{"job":"report","from":%q,"to":%q,"slots":10,"published":0,"recorded":{"missed":1,"succeeded":1},"waiting":8,"folded":0,"too_old":0}`,
		stamp(-10), stamp(0)) + "\n"
	if got := f.ok(t, append(args, "-o", "json")...); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	out := f.ok(t, "job", "backfill", "report", "--from", stamp(-50), "--to", stamp(-5), "--clip", "-o", "json")
	var row struct {
		Slots, Published, Waiting int
		TooOld                    int `json:"too_old"`
	}
	if err := json.Unmarshal([]byte(out), &row); err != nil || row.Slots != 45 || row.TooOld+row.Published+row.Waiting != 45 || row.TooOld < 26 {
		t.Errorf("clipped: %s", out)
	}
}

func TestJobBackfillRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}.WithDefaults()})
	soon := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	from := "2026-01-01T00:00:00Z"
	for _, c := range []struct {
		code  int
		args  []string
		parts []string
	}{
		{base.ExitUsage, []string{"report"}, []string{"--from is missing"}},
		{base.ExitUsage, []string{"report", "--from", "yesterday"}, []string{"--from", "RFC 3339"}},
		{base.ExitUsage, []string{"report", "--from", from, "--to", "x"}, []string{"--to", "RFC 3339"}},
		{base.ExitUsage, []string{"report", "--from", from, "--to", from}, []string{"not after"}},
		{base.ExitUsage, []string{"report", "--from", from, "--to", soon}, []string{"in the future"}},
		{base.ExitUsage, []string{"report", "--from", soon}, []string{"in the future"}},
		{base.ExitUsage, []string{"report", "--from", from, "--rate", "0"}, []string{"--rate", "1/s to 10000/s"}},
		{base.ExitUsage, []string{"report", "--from", from, "--rate", "5/m"}, []string{"--rate"}},
		{base.ExitUsage, []string{"a.b", "--from", from}, []string{`"a.b"`}},
		{base.ExitFailed, []string{"raport", "--from", from}, []string{"no job named raport", "report"}},
	} {
		f.run(t, append([]string{"job", "backfill"}, c.args...)...).oneError(t, c.code, c.parts...)
	}
}

// A backfill that is killed in the middle and then repeated publishes each slot once.
func TestBackfillSurvivesAKill(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	end := time.Now().UTC().Truncate(time.Second)
	f.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@every 1s"}.WithDefaults(), Since: end.Add(-time.Hour)})
	args := []string{"job", "backfill", "report", "--from", end.Add(-300 * time.Second).Format(time.RFC3339), "--to", end.Format(time.RFC3339)}
	cmd := exec.Command(os.Args[0], append(args, "--rate", "200")...)
	cmd.Env = append(os.Environ(), "CRONCE_TEST_MAIN=1", "CRONCE_SERVER="+f.url)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "some slots", func() bool { return len(f.waiting(t)) > 20 })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	before := len(f.waiting(t))
	if before >= 300 {
		t.Fatalf("%d slots before the kill: it came too late to show anything", before)
	}
	out := f.ok(t, append(args, "--rate", "5000")...)
	if want := fmt.Sprintf("%d published\n  %d already pending\n", 300-before, before); !strings.Contains(out, want) {
		t.Errorf("got:\n%swant %q", out, want)
	}
	if all := f.waiting(t); len(all) != 300 {
		t.Errorf("%d slots wait, want 300", len(all))
	}
}
