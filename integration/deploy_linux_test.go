//go:build long

package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

const (
	rulesFile     = "../deploy/prometheus/cronce.rules.yaml"
	dashboardFile = "../deploy/grafana/cronce.json"
)

// scraped is what two scrapes of one process brought.
type scraped struct {
	instance    string
	first, last map[string]float64
	at          time.Time // of the last scrape
}

// scrapedFleet runs a server and two nodes, and scrapes them before and after some slots. The
// jobs succeed, one of them at its second attempt.
func scrapedFleet(t *testing.T) (all []scraped) {
	t.Helper()
	s := newSite(t)
	s.server = s.start("server", "server", "--listen", "127.0.0.1:0", "--store", s.path("store"), "--metrics-addr", "127.0.0.1:0", "-o", "json")
	eventually(t, "the server's address", func() bool { return strings.Contains(s.server.stdout(), "}") })
	s.url = readJSON[struct{ URL string }](t, []byte(s.server.stdout())).URL
	s.workerArgs = []string{"--metrics-addr", "127.0.0.1:0"}
	file := s.jobs(`[ "$CRONCE_JOB" != again ] || [ "$CRONCE_ATTEMPT" = 2 ]`,
		`name: tick, schedule: "* * * * * *"`, `name: again, schedule: "* * * * * *", retry: {attempts: 2, backoff: 10ms}`)
	processes := []*process{s.server, s.worker("a", file), s.worker("b", file)}
	outcomes := func() (n float64) {
		for _, p := range processes {
			n += p.metrics()[`cronce_slot_outcomes_total{job="again",state="succeeded"}`]
		}
		return n
	}
	wait := func(more float64) {
		want := outcomes() + more
		eventually(t, "more slots", func() bool { return outcomes() >= want })
	}
	wait(2)
	for _, p := range processes {
		all = append(all, scraped{instance: p.name, first: p.metrics()})
	}
	wait(4)
	for i, p := range processes {
		all[i].last, all[i].at = p.metrics(), time.Now()
	}
	return all
}

var (
	metricName = regexp.MustCompile(`\bcronce_[a-z_]+`)
	ofFamily   = regexp.MustCompile(`_(bucket|sum|count)$`)
	counts     = regexp.MustCompile(`^\w+_(total|bucket|sum|count)(\{|$)`)
)

// dashboardExpressions returns the expressions of the dashboard, with Grafana's variables
// replaced.
func dashboardExpressions(t *testing.T) (all []string) {
	t.Helper()
	type panel struct{ Targets []struct{ Expr string } }
	for _, p := range readJSON[struct{ Panels []panel }](t, filetest.Read(t, dashboardFile)).Panels {
		for _, target := range p.Targets {
			all = append(all, strings.NewReplacer("$__rate_interval", "5m", "$job", ".*").Replace(target.Expr))
		}
	}
	if len(all) == 0 {
		t.Fatal("the dashboard has no expressions")
	}
	return all
}

type ruleFile struct {
	Groups []struct {
		Rules []struct{ Record, Alert, Expr string }
	}
}

// A metric that was renamed would leave an alarm silent and a panel empty.
func TestRulesAndDashboardUseMetricsThatAFleetHas(t *testing.T) {
	t.Parallel()
	fleet := scrapedFleet(t)
	has := map[string]bool{}
	for _, p := range fleet {
		for series := range p.last {
			name, _, _ := strings.Cut(series, "{")
			has[name] = true
		}
	}
	var rules ruleFile
	if err := yaml.Unmarshal(filetest.Read(t, rulesFile), &rules); err != nil {
		t.Fatal(err)
	}
	expressions := map[string][]string{"the dashboard": dashboardExpressions(t)}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			expressions[r.Record+r.Alert] = []string{r.Expr}
		}
	}
	used := map[string]bool{}
	for where, all := range expressions {
		for _, name := range metricName.FindAllString(strings.Join(all, "\n"), -1) {
			used[ofFamily.ReplaceAllString(name, "")] = true
			if !has[name] {
				t.Errorf("%s uses %s, which no process of the fleet has", where, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(has)) {
		if family := ofFamily.ReplaceAllString(name, ""); strings.HasPrefix(name, "cronce_") && !used[family] {
			t.Errorf("no panel and no rule uses %s", family)
		}
	}
	t.Run("in promtool", func(t *testing.T) { checkFleetInPromtool(t, fleet, rules) })
}

// checkFleetInPromtool continues the series of the fleet for an hour, at the pace of the two
// scrapes. No alert may fire, and each expression of the dashboard must have a value.
func checkFleetInPromtool(t *testing.T, fleet []scraped, rules ruleFile) {
	needCommand(t, "promtool")
	type object = map[string]any
	var series, cases []object
	add := func(name, values string) {
		series = append(series, object{"series": name, "values": values})
	}
	for _, p := range fleet {
		for name, last := range p.last {
			labelled := strings.Replace(name, "{", fmt.Sprintf("{instance=%q,", p.instance), 1)
			if labelled == name {
				labelled = fmt.Sprintf("%s{instance=%q}", name, p.instance)
			}
			switch first := p.first[name]; {
			case strings.HasPrefix(name, "cronce_job_last_success_timestamp_seconds"):
				add(labelled, fmt.Sprintf("%f+60x60", last-float64(p.at.Unix()))) // promtool's clock starts at 0
			case counts.MatchString(name):
				add(labelled, fmt.Sprintf("%f+%fx60", first, last-first))
			default:
				add(labelled, fmt.Sprintf("%fx60", last))
			}
		}
	}
	for _, job := range []string{"tick", "again"} {
		add(fmt.Sprintf("cronce:job_success_limit_seconds{job=%q}", job), "600x60")
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Alert != "" {
				cases = append(cases, object{"eval_time": "50m", "expr": fmt.Sprintf(`ALERTS{alertname=%q}`, r.Alert), "exp_samples": []any{}})
			}
		}
	}
	for _, expression := range dashboardExpressions(t) {
		cases = append(cases, object{"eval_time": "50m", "expr": "absent(" + expression + ")", "exp_samples": []any{}})
	}
	path, err := filepath.Abs(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(object{"rule_files": []string{path}, "evaluation_interval": "1m", "tests": []object{{"interval": "1m", "input_series": series, "promql_expr_test": cases}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "healthy.yaml") // JSON is YAML
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("promtool", "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}
