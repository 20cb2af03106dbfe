package metrics_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/metrics"
)

var update = flag.Bool("update", false, "rewrite the table of docs/metrics.md")

const page = "../docs/metrics.md"

// event returns an event of a kind about a job.
func event(kind job.EventKind, name string) job.Event {
	return job.Event{Kind: kind, Job: name, Time: time.Unix(1_800_000_000, 0)}
}

// exercised returns a Metrics in which every metric has a series.
func exercised() *metrics.Metrics {
	m := metrics.New()
	m.Started("default", 3*time.Millisecond, true)
	m.Waits("default")
	m.Returned("default", time.Second)
	for _, kind := range []job.EventKind{job.EventSucceeded, job.EventRetrying, job.EventSkipped} {
		m.Event(event(kind, "report"))
	}
	m.Follow(func() cronce.Stats {
		return cronce.Stats{
			Clock: true, Now: time.Unix(100, 0), Watermark: time.Unix(98, 0), Withheld: map[string]bool{"default": true},
			Queues: map[string]cronce.Backlog{"default": {Waiting: 2, Oldest: time.Unix(90, 0)}},
		}
	})
	return m
}

// gather scrapes m as a registry does, by name.
func gather(t *testing.T, m *metrics.Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	found, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	families := map[string]*dto.MetricFamily{}
	for _, f := range found {
		families[f.GetName()] = f
	}
	return families
}

func TestNamesFollowPrometheusConventions(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(exercised())
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

// The page's table has the metrics of a scrape, and the page's text names no others.
func TestPageDescribesEveryMetric(t *testing.T) {
	t.Parallel()
	families := gather(t, exercised())
	table := "| name | type | labels | what it is |\n|---|---|---|---|\n"
	for _, f := range slices.SortedFunc(values(families), func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) }) {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		table += fmt.Sprintf("| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp())
	}
	text := string(filetest.Read(t, page))
	begin, end := strings.Index(text, "-->\n")+len("-->\n"), strings.Index(text, "<!-- end of table -->")
	if *update {
		text = text[:begin] + table + text[end:]
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if text[begin:end] != table {
		t.Errorf("the table of %s is not what a scrape has (go test ./metrics -update, and read the diff):\n%s", page, table)
	}
	for _, name := range regexp.MustCompile(`cronce_[a-z_]+`).FindAllString(text, -1) {
		name = strings.TrimSuffix(name, "_bucket")
		if families[name] == nil && !strings.HasPrefix(name, "cronce_server_") {
			t.Errorf("%s speaks of %s, which there is not", page, name)
		}
	}
}

// Each expression uses metrics and labels that exist, and rates only of counters. Tests with
// promtool show that the alarms fire when they should.
func TestAlarmsUseMetricsThatExist(t *testing.T) {
	t.Parallel()
	families := gather(t, exercised())
	_, section, _ := strings.Cut(string(filetest.Read(t, page)), "## Alarms to set")
	section, _, _ = strings.Cut(section, "\n## ")
	alarms := regexp.MustCompile("(?m)^\\| ([^|]+) \\| `([^`]+)`").FindAllStringSubmatch(section, -1)
	if len(alarms) < 13 || len(alarms) != strings.Count(section, "\n| ")-1 {
		t.Fatalf("%d alarms were found", len(alarms))
	}
	selector := regexp.MustCompile(`(?:(\w+)\()?(cronce_\w+?)(_bucket)?\b(?:\{(.*?)\})?(\[)?`)
	for _, alarm := range alarms {
		name, expression := alarm[1], alarm[2]
		there := map[string]bool{}
		selected := selector.FindAllStringSubmatch(expression, -1)
		if len(selected) == 0 && !strings.Contains(expression, "cronce:") { // a rule that Cronce's rules record
			t.Errorf("%s: %s has no metric of Cronce", name, expression)
		}
		for _, found := range selected {
			function, f, bucket, matchers, overTime := found[1], families[found[2]], found[3] != "", found[4], found[5] != ""
			if f == nil {
				t.Errorf("%s: there is no %s", name, found[2])
				continue
			}
			own := map[string]bool{"le": bucket}
			for _, l := range f.GetMetric()[0].GetLabel() {
				own[l.GetName()] = true
			}
			for _, m := range regexp.MustCompile(`(\w+)="(.*?)"`).FindAllStringSubmatch(matchers, -1) {
				if !own[m[1]] || m[1] == "state" && !job.State(m[2]).Final() {
					t.Errorf("%s: %s has no %s", name, found[2], m[0])
				}
			}
			counts := f.GetType() != dto.MetricType_GAUGE
			if overTime && counts != (function == "increase" || function == "rate") || bucket != (f.GetType() == dto.MetricType_HISTOGRAM) {
				t.Errorf("%s: %s( of %s, which is a %s", name, function, found[2], f.GetType())
			}
			for l, has := range own {
				there[l] = there[l] || has
			}
		}
		for _, by := range regexp.MustCompile(`by \((.*?)\)`).FindAllStringSubmatch(expression, -1) {
			for l := range strings.SplitSeq(by[1], ", ") {
				if !there[l] {
					t.Errorf("%s: nothing in it has label %s", name, l)
				}
			}
		}
	}
}

func values[K comparable, V any](m map[K]V) func(func(V) bool) {
	return func(yield func(V) bool) {
		for _, v := range m {
			if !yield(v) {
				return
			}
		}
	}
}

func TestJobsBeyondTheFirstAreCountedTogether(t *testing.T) {
	t.Parallel()
	m := metrics.New()
	for range 2 {
		for i := range metrics.MaxJobs + 50 {
			m.Event(event(job.EventSucceeded, fmt.Sprintf("job-%d", i)))
			m.Event(event(job.EventExpired, fmt.Sprintf("job-%d", i)))
		}
	}
	counts := map[string]float64{}
	for _, metric := range gather(t, m)["cronce_slot_outcomes_total"].GetMetric() {
		for _, l := range metric.GetLabel() {
			if l.GetName() == "job" {
				counts[l.GetValue()] += metric.GetCounter().GetValue()
			}
		}
	}
	if len(counts) != metrics.MaxJobs+1 || counts[metrics.OtherJobs] != 2*2*50 || counts["job-0"] != 4 {
		t.Errorf("%d jobs, %s has %v, job-0 %v", len(counts), metrics.OtherJobs, counts[metrics.OtherJobs], counts["job-0"])
	}
	if err := codec.ValidateName("job", metrics.OtherJobs); err == nil {
		t.Errorf("a job could be named %s", metrics.OtherJobs)
	}
}

// A value that is not known has no series: a zero would look like a value.
func TestUnknownValuesAreLeftOut(t *testing.T) {
	t.Parallel()
	m := metrics.New()
	m.Follow(func() cronce.Stats { return cronce.Stats{Queues: map[string]cronce.Backlog{"q": {Waiting: 1}}} })
	families := gather(t, m)
	for _, name := range []string{"cronce_clock_offset_seconds", "cronce_clock_error_seconds", "cronce_watermark_lag_seconds", "cronce_queue_age_seconds"} {
		if families[name] != nil {
			t.Errorf("%s is %v", name, families[name])
		}
	}
}

// A zero would mean a success in 1970. The alarm for jobs without a recent success would then
// fire at the first failure after each restart.
func TestJobThatHasNotSucceededHasNoLastSuccess(t *testing.T) {
	t.Parallel()
	const name = "cronce_job_last_success_timestamp_seconds"
	m := metrics.New()
	m.Event(event(job.EventFailed, "report"))
	m.Event(event(job.EventRetrying, "report"))
	if family := gather(t, m)[name]; family != nil {
		t.Errorf("after a failure: %v", family)
	}
	m.Event(job.Event{Kind: job.EventSucceeded, Job: "report", Time: time.Unix(1_795_000_000, 0)})
	if family := gather(t, m)[name]; family == nil || family.Metric[0].GetGauge().GetValue() != 1_795_000_000 {
		t.Errorf("after a success: %v", family)
	}
}

// slot makes the measurements of one slot that succeeds.
func slot(m *metrics.Metrics) {
	m.Ledger("write", time.Millisecond, nil)
	m.Started("default", time.Millisecond, true)
	m.Returned("default", time.Millisecond)
	m.Ledger("write", time.Millisecond, nil)
	m.Event(job.Event{Kind: job.EventSucceeded, Job: "report"})
}

func TestSlotIsMeasuredWithoutAllocating(t *testing.T) {
	m := metrics.New()
	if n := testing.AllocsPerRun(100, func() { slot(m) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	m.Ledger("read", time.Millisecond, errors.New("no"))
	if v := gather(t, m)["cronce_ledger_errors_total"].GetMetric()[0].GetCounter().GetValue(); v != 1 {
		t.Errorf("%v errors", v)
	}
}

func BenchmarkSlot(b *testing.B) {
	m := metrics.New()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			slot(m)
		}
	})
}
