package deploy_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

type rule struct {
	Record, Alert, Expr, For string
	Annotations              struct{ Description string }
}

func alerts(t *testing.T) (found []rule) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []rule }
	}
	if err := yaml.Unmarshal(filetest.Read(t, "prometheus/cronce.rules.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert != "" {
				found = append(found, r)
			}
		}
	}
	if len(found) == 0 {
		t.Fatal("there are no alerts")
	}
	return found
}

// needCommand skips the test, by name, if a program is missing. With CRONCE_TEST_NO_SKIP=1 a
// missing program fails the test, unless CRONCE_TEST_WITHOUT names it.
func needCommand(t *testing.T, name string) {
	t.Helper()
	_, err := exec.LookPath(name)
	switch {
	case err == nil:
	case os.Getenv("CRONCE_TEST_NO_SKIP") == "1" && !slices.Contains(strings.Fields(os.Getenv("CRONCE_TEST_WITHOUT")), name):
		t.Fatal(err)
	default:
		t.Skipf("needs %s: %v", name, err)
	}
}

func TestRulesPassTheirTestsInPromtool(t *testing.T) {
	t.Parallel()
	needCommand(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "cronce.rules.yaml"}, {"check", "config", "prometheus.yaml"}, {"test", "rules", "cronce.rules_test.yaml"}} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = "prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// Each alert has a case in which it fires and, before or after that, one in which it does not.
func TestEachAlertHasACaseInWhichItFires(t *testing.T) {
	t.Parallel()
	var file struct {
		Tests []struct {
			Cases []struct {
				Expr    string
				Samples []any `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		}
	}
	if err := yaml.Unmarshal(filetest.Read(t, "prometheus/cronce.rules_test.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, c := range test.Cases {
			fires[c.Expr], silent[c.Expr] = fires[c.Expr] || len(c.Samples) > 0, silent[c.Expr] || len(c.Samples) == 0
		}
	}
	for _, a := range alerts(t) {
		expr := fmt.Sprintf(`ALERTS{alertname="%s", alertstate="firing"}`, a.Alert)
		if !fires[expr] || !silent[expr] && !partly[a.Alert] {
			t.Errorf("%s has a case in which it fires: %v, and one in which it is silent: %v", a.Alert, fires[expr], silent[expr])
		}
	}
}

// partly names alerts whose case has series that fire beside series that do not.
var partly = map[string]bool{"CronceJobNotSucceeded": true, "CronceClockWrong": true}

var alarmTable = regexp.MustCompile(`(?s)(<!-- alarms: [^\n]*-->\n).*(<!-- end of alarms -->)`)

func TestTableOfAlarmsIsMadeFromTheRules(t *testing.T) {
	t.Parallel()
	table := "| alarm | when | what it means, and what to do |\n|---|---|---|\n"
	for _, a := range alerts(t) {
		when := "`" + a.Expr + "`"
		if a.For != "" {
			when += " for " + a.For
		}
		table += fmt.Sprintf("| %s | %s | %s |\n", a.Alert, when, a.Annotations.Description)
	}
	const page = "../docs/metrics.md"
	text := filetest.Read(t, page)
	if !alarmTable.Match(text) {
		t.Fatalf("%s has no place for the table", page)
	}
	made(t, page, alarmTable.ReplaceAll(text, []byte("${1}"+strings.ReplaceAll(table, "$", "$$")+"${2}")))
}
