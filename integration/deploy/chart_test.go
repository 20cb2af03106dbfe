package deploy_test

import (
	"flag"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/yaml"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

const (
	chartDir   = "../../deploy/helm/cronce"
	plainFile  = "../../deploy/kubernetes/cronce.yaml"
	namespace  = "jobs"
	plainNotes = "# The chart of deploy/helm/cronce, rendered for those without Helm (go test . -update in\n# integration/deploy). docs/kubernetes.md says what to change, and which secrets it needs.\n"
)

var update = flag.Bool("update", false, "rewrite the rendered manifests")

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // Helm reports each symbolic link of the chart
	flag.Parse()
	code := m.Run()
	for _, f := range atEnd {
		f()
	}
	os.Exit(code)
}

// atEnd is called after the last test.
var atEnd []func()

// sets are the names of the sets of values with which the chart is rendered.
var sets = []string{"minimal", "production", "dashboard", "monitoring", "own-image", "producers", "plain"}

func values(t *testing.T, set string) map[string]any {
	t.Helper()
	v := map[string]any{}
	if err := yaml.UnmarshalStrict(filetest.Read(t, filepath.Join("testdata/values", set+".yaml")), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func loaded(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render returns what "helm install cronce" sends, or its error.
func render(t *testing.T, v map[string]any) (string, error) {
	t.Helper()
	c := loaded(t)
	all, err := chartutil.ToRenderValues(c, v, chartutil.ReleaseOptions{Name: "cronce", Namespace: namespace, Revision: 1, IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".txt") && strings.TrimSpace(files[name]) != "" {
			text.WriteString("---\n" + strings.TrimPrefix(strings.TrimLeft(files[name], "\n"), "---\n") + "\n")
		}
	}
	return text.String(), nil
}

func rendered(t *testing.T, set string) string {
	t.Helper()
	text, err := render(t, values(t, set))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestChartPassesHelmLint(t *testing.T) {
	t.Parallel()
	for _, set := range sets {
		l := lint.AllWithKubeVersion(chartDir, values(t, set), namespace, &chartutil.DefaultCapabilities.KubeVersion)
		for _, m := range l.Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", set, m)
			}
		}
	}
}

// made checks that a file has this text. With -update it writes the text.
func made(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got := string(filetest.Read(t, path)); got != want {
		t.Errorf("%s is not what the chart renders: run \"go test . -update\" in integration/deploy, and look at the difference", path)
	}
}

// longFiles matches the alarms and the dashboard, which would hide the rest. TestChartHasTheRulesAndTheDashboard checks
// them.
var longFiles = regexp.MustCompile(`(?s)(\nspec:\n  groups:\n|\n  cronce\.json: \|-\n).*?(\n---\n|$)`)

func TestChartRendersWhatIsStored(t *testing.T) {
	t.Parallel()
	for _, set := range sets {
		text := rendered(t, set)
		if set == "plain" {
			made(t, plainFile, plainNotes+withoutHelm.ReplaceAllString(text, ""))
			continue
		}
		made(t, filepath.Join("testdata/rendered", set+".yaml"), longFiles.ReplaceAllString(text, "$1    (left out)\n$2"))
	}
}

// withoutHelm removes what only Helm reads.
var withoutHelm = regexp.MustCompile(`(?m)^ *(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n`)

// The error for values that cannot work says what would be right.
func TestChartRefusesWrongValues(t *testing.T) {
	t.Parallel()
	servers := map[string]any{"servers": "nats://nats:4222"}
	type object = map[string]any
	for says, v := range map[string]object{
		"nats.servers is empty: set the URLs":               {},
		"set: use one of them":                              {"nats": servers, "worker": object{"jobs": object{"file": "version: 1", "existingConfigMap": "jobs"}}},
		"dashboard.access.secret is empty: type tokens":     {"nats": servers, "dashboard": object{"enabled": true}},
		"dashboard.access.issuer is empty":                  {"nats": servers, "dashboard": object{"enabled": true, "access": object{"type": "oidc", "secret": "s"}}},
		"dashboard.url is empty: the ingress needs":         {"nats": servers, "dashboard": object{"enabled": true, "access": object{"type": "insecure"}, "ingress": object{"enabled": true}}},
		"additional properties 'replica' not allowed":       {"nats": servers, "worker": object{"replica": 1}},
		"at '/dashboard/url'":                               {"nats": servers, "dashboard": object{"url": "https://example.com/cronce"}},
		"at '/worker/login/type': value must be one of":     {"nats": servers, "worker": object{"login": object{"type": "jwt"}}},
		"dashboard.access.trustedProxies is empty":          {"nats": servers, "dashboard": object{"enabled": true, "access": object{"type": "proxy", "userHeader": "X-User", "trustedProxies": []any{}}}},
		"at '/worker/graceSeconds': got string, want integ": {"nats": servers, "worker": object{"graceSeconds": "25s"}},
	} {
		if text, err := render(t, v); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: want an error with %q, got %v\n%s", v, says, err, text)
		}
	}
}

// Kubernetes replaces the pods if the checksum in their template changes. More replicas must not change it.
func TestChangedJobFileRollsThePods(t *testing.T) {
	t.Parallel()
	sum := func(file string, replicas int) string {
		v := values(t, "minimal")
		worker := v["worker"].(map[string]any)
		worker["jobs"].(map[string]any)["file"], worker["replicas"] = file, replicas
		text, err := render(t, v)
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`checksum/jobs: \w+`).FindString(text)
	}
	a, b, c := sum("version: 1\n", 2), sum("version: 1\n# changed\n", 2), sum("version: 1\n", 3)
	if a == "" || a == b || a != c {
		t.Errorf("checksums %q, %q of another file, and %q for other replicas", a, b, c)
	}
}
