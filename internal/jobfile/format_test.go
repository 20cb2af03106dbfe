package jobfile

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

// full is a job with every field set, and none to its default.
var full = job.Job{
	Name: "report", Schedule: "H 7 * * MON-FRI", Timezone: "Europe/Berlin", Spread: 5 * time.Minute,
	From: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Until: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
	Exclude: []string{"2026-12-25", "* * * * SUN"}, DSTGap: job.GapSkip, DSTOverlap: job.RepeatBoth,
	Queue: "slow", Payload: json.RawMessage(`{"a":[1,2.50,null,true,"x # y: z"],"b":"<&>"}`),
	Timeout: 90 * time.Second, Deadline: time.Hour, Output: 8192,
	Retry:   job.Retry{Attempts: 5, Backoff: 2 * time.Second, MaxBackoff: 2 * time.Minute},
	CatchUp: job.CatchUp{Policy: job.CatchUpAll, Within: 2 * time.Hour, Max: 7},
	Overlap: job.OverlapQueue, Concurrency: 3, OnLeaseLost: job.LeaseLostFinish, Shards: 4,
	OnFailure: &job.Alert{HTTP: &job.AlertHTTP{URL: "https://example.com/alerts?team=a", Headers: []job.AlertHeader{
		{Name: "Authorization", Prefix: "Bearer ", Env: "CRONCE_ALERT_TOKEN"}, {Name: "X-Key", Env: "CRONCE_ALERT_KEY"},
	}}},
	OnMissed:    &job.Alert{NATS: &job.AlertNATS{Subject: "alerts.missed"}, Template: "line 1: {{.Title}}\n\tline 2: {{.Key}}\n", KeyEnv: "CRONCE_ALERT_KEY"},
	OnSuccess:   &job.Alert{HTTP: &job.AlertHTTP{URLEnv: "CRONCE_ALERT_SLACK"}, Format: "slack"},
	OnRecovered: &job.Alert{HTTP: &job.AlertHTTP{URL: "https://events.pagerduty.com/v2/enqueue"}, Format: "pagerduty", KeyEnv: "CRONCE_ALERT_PAGERDUTY"},
	OnLate:      &job.Alert{HTTP: &job.AlertHTTP{URL: "https://ntfy.sh/alerts"}, Format: "ntfy"}, LateAfter: 5 * time.Minute,
	Heartbeat: &job.AlertHTTP{URLEnv: "CRONCE_ALERT_HEARTBEAT"},
}

// chained has what a job with a schedule cannot have.
var chained = job.Job{Name: "load", After: []string{"extract", "check"}, Shards: 2,
	OnMissed: &job.Alert{HTTP: &job.AlertHTTP{URLEnv: "CRONCE_ALERT_URL"}}}

func same(t interface {
	Helper()
	Fatalf(string, ...any)
}, text []byte, want ...job.Job) {
	t.Helper()
	file, err := Parse("f", text, spec.WithoutActions())
	if err != nil || len(file.Jobs) != len(want) {
		t.Fatalf("%v in\n%s", err, text)
	}
	for i, e := range file.Jobs {
		got, err := e.Job.Hash()
		if err != nil {
			t.Fatalf("%v", err)
		}
		if hash, err := want[i].Hash(); err != nil || hash != got {
			t.Fatalf("job %d is read as %+v, want %+v (%v), from\n%s", i, e.Job, want[i], err, text)
		}
	}
}

func TestWhatIsFormattedIsReadAsTheSameJobs(t *testing.T) {
	t.Parallel()
	started := full
	started.After, started.On = chained.After, job.On{Stream: "ORDERS", Subject: "orders.paid"}
	for _, s := range []any{started, full.Retry, full.CatchUp} {
		v := reflect.ValueOf(s)
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("set %s.%s in this test, and write it in Format", v.Type(), v.Type().Field(i).Name)
			}
		}
	}
	least := job.Job{Name: "least", Schedule: "@every 90s"}
	messaged := job.Job{Name: "charge", On: started.On}
	text, err := Format(full, least, chained, messaged)
	if err != nil {
		t.Fatal(err)
	}
	same(t, text, full, least, chained, messaged)
	if _, err := Parse("f", text); err == nil || !strings.Contains(err.Error(), "no action") {
		t.Errorf("to run it gives %v, want that there is no action", err)
	}
}

func TestBoundsWithinASecondAreFormattedAsThoseOfTheSameSlots(t *testing.T) {
	t.Parallel()
	second := time.Date(2026, 11, 26, 7, 0, 0, 0, time.UTC)
	within := job.Job{Name: "report", Schedule: "* * * * *", From: second.Add(1), Until: second.Add(time.Hour + time.Second/2)}
	text, err := Format(within)
	if err != nil {
		t.Fatal(err)
	}
	whole := within
	whole.From, whole.Until = second.Add(time.Second), second.Add(time.Hour+time.Second) // of the slots at 07:00 and 08:00, the last is one
	same(t, text, whole)
}

func TestNoPayloadOrTextIsTakenForSomethingElse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(
			rapid.String().AsAny(), rapid.SampledFrom([]any{"", "~", "yes", "no", "1e3", "0x10", "2026-01-01", "- a", "{", "\u2028\u0085\ufeff", "a\nb", "*x", "\U0001F600/a", "\U000e0001\x7f", "&y", "!!int", "<<"}),
			rapid.Float64Range(-1e15, 1e15).AsAny(), rapid.MapOf(rapid.String(), rapid.String()).AsAny(),
		).Draw(t, "value")
		payload, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "escaped") {
			payload = []byte(strings.NewReplacer("/", `\/`, "\U0001F600", `\ud83d\ude00`).Replace(string(payload)))
		}
		j := job.Job{Name: "a", Schedule: "@daily", Payload: payload}
		text, err := Format(j)
		if err != nil {
			t.Fatal(err)
		}
		file, err := Parse("f", text, spec.WithoutActions())
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		var got, want any
		if err := json.Unmarshal(file.Jobs[0].Job.Payload, &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(payload, &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q is read as %q from\n%s", payload, file.Jobs[0].Job.Payload, text)
		}
	})
}
