package plans_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// The parser's cache does not affect its results. The plans differ in few members, so that a wrong
// cache key would return the schedule of another plan.
func TestAParserAnswersAsIfItRememberedNothing(t *testing.T) {
	t.Parallel()
	some := func(t *rapid.T, label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label) }
	instant := func(t *rapid.T, label string) time.Time {
		at := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
		return rapid.SampledFrom([]time.Time{{}, at, at.Add(time.Hour), at.Add(time.Nanosecond), at.In(time.FixedZone("", 3600))}).Draw(t, label)
	}
	rapid.Check(t, func(t *rapid.T) {
		var parser plans.EntryDecoder
		for range 30 {
			name := some(t, "name", "a", "b", "")
			p := job.Plan{
				Schedule: some(t, "schedule", "0 7 * * *", "H 7 * * *", "0 7 * * THU", "0,H 7 * * *", "0 7\tH * *", "@hourly", "@every 90s", "61 * * * *", "0 2 30 2 *", ""),
				Timezone: some(t, "timezone", "", "UTC", "Europe/Berlin", "Europe/berlin"),
				Spread:   rapid.SampledFrom([]time.Duration{0, 0, time.Hour}).Draw(t, "spread"),
				From:     instant(t, "from"), Until: instant(t, "until"),
				Exclude:    rapid.SampledFrom([][]string{nil, {"2027-01-02", "2027-01-03"}, {"2027-01-02\"\"2027-01-03"}, {"2027-01-03"}}).Draw(t, "exclude"),
				DSTGap:     job.GapPolicy(some(t, "gap", "", "after", "skip")),
				DSTOverlap: job.RepeatPolicy(some(t, "overlap", "", "first", "both")),
				Shards:     rapid.IntRange(0, 2).Draw(t, "shards"),
			}
			if rapid.IntRange(0, 9).Draw(t, "started") == 0 {
				p = job.Plan{After: []string{some(t, "after", "a", "c")}}
			}
			got, gotErr := parser.Schedule(name, p)
			want, wantErr := job.ParseSchedule(name, p)
			if fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
				t.Fatalf("%q %+v: %v, want %v", name, p, gotErr, wantErr)
			}
			if wantErr == nil && (got.Key() != want.Key() || got.Location() != want.Location()) {
				t.Fatalf("%q %+v: %s, want %s", name, p, got.Key(), want.Key())
			}
		}
	})
}

func TestAParserCompilesAPlanOfManyJobsOnce(t *testing.T) {
	t.Parallel()
	var parser plans.EntryDecoder
	first, err := parser.Schedule("job0", job.Plan{Schedule: "0 7 * * MON-THU"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if s, err := parser.Schedule(fmt.Sprint("job", i), job.Plan{Schedule: "0 7 * * MON-THU", Timezone: "UTC"}); err != nil || s != first {
			t.Fatalf("job%d has a schedule of its own (%v)", i, err)
		}
	}
}

// If there are more plans than the cache holds, the parser compiles the further ones, and compiles
// evicted ones again.
func TestAParserForgetsRatherThanGrows(t *testing.T) {
	t.Parallel()
	var parser plans.EntryDecoder
	const plans, most = 6000, 4096
	first, remembered := map[int]*job.Schedule{}, 0
	for i := range 2 * plans {
		i %= plans
		p := job.Plan{Schedule: fmt.Sprintf("%d %d %d * * *", i%60, i/60%60, i/3600)}
		s, err := parser.Schedule("report", p)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%02d:%02d:%02d", i/3600, i/60%60, i%60); s.Next(time.Unix(0, 0)).Format(time.TimeOnly) != want {
			t.Fatalf("%s: first slot at %v, want %s", p.Schedule, s.Next(time.Unix(0, 0)), want)
		}
		if first[i] == nil {
			first[i] = s
		} else if first[i] == s {
			remembered++
		}
	}
	if remembered == 0 || remembered > most {
		t.Errorf("%d of %d plans were remembered, want some and at most %d", remembered, plans, most)
	}
}

func BenchmarkDecodeEntry(b *testing.B) {
	data, err := json.Marshal(plans.Definition{Owner: plans.OwnerCode, Node: "elsewhere-1-1763700000-abcdefgh", Nonce: "1", Job: job.Job{
		Name: "customer-report-00000001", Schedule: "5 7 1 1 *", Payload: json.RawMessage(`"` + strings.Repeat("x", 98) + `"`),
	}})
	if err != nil {
		b.Fatal(err)
	}
	var parser plans.EntryDecoder
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parser.Entry(data, 1, time.Unix(1763700000, 0)); err != nil {
			b.Fatal(err)
		}
	}
}
