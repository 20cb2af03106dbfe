package deploy_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-jsonnet"
	"sigs.k8s.io/yaml"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// mixed evaluates a field of the mixin, with this configuration.
func mixed[T any](t *testing.T, config, of string) (value T) {
	t.Helper()
	vm := jsonnet.MakeVM()
	vm.Importer(&jsonnet.FileImporter{JPaths: []string{"../../deploy"}})
	text, err := vm.EvaluateAnonymousSnippet("test", "((import 'mixin.libsonnet') + { _config+:: "+config+" })."+of)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// groups is a file of rules.
type groups struct{ Groups []map[string]any }

func TestMixinHasTheRulesAndTheDashboard(t *testing.T) {
	t.Parallel()
	var want groups
	if err := yaml.Unmarshal(filetest.Read(t, "../../deploy/prometheus/cronce.rules.yaml"), &want); err != nil {
		t.Fatal(err)
	}
	got := groups{append(mixed[groups](t, "{}", "prometheusRules").Groups, mixed[groups](t, "{}", "prometheusAlerts").Groups...)}
	if len(want.Groups) == 0 || asJSON(t, got) != asJSON(t, want) {
		t.Errorf("the mixin has the rules\n%s\nwant\n%s", asJSON(t, got), asJSON(t, want))
	}
	var dashboard any
	if err := json.Unmarshal(filetest.Read(t, "../../deploy/grafana/cronce.json"), &dashboard); err != nil {
		t.Fatal(err)
	}
	if got := mixed[map[string]any](t, "{}", "grafanaDashboards"); asJSON(t, got["cronce.json"]) != asJSON(t, dashboard) {
		t.Error("the dashboard of the mixin is not that of deploy/grafana")
	}
}

func TestMixinHasALimitForEachJobThatMatters(t *testing.T) {
	t.Parallel()
	got := mixed[groups](t, "{ cronceSuccessLimits: { backup: 90000 } }", "prometheusRules").Groups
	const want = `{"name":"cronce-limits","rules":[{"expr":"90000","labels":{"job":"backup"},"record":"cronce:job_success_limit_seconds"}]}`
	if last := asJSON(t, got[len(got)-1]); last != want {
		t.Errorf("the last group is %s, want %s", last, want)
	}
}
