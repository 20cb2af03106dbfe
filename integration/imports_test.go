package integration

import (
	"encoding/json"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/cronce-io/cronce"

type goPackage struct {
	ImportPath   string
	Imports      []string
	Deps         []string
	Standard     bool
	XTestImports []string
}

// listPackages asks the Go command what the packages of the product and of the lab import.
func listPackages(t *testing.T) map[string]goPackage {
	t.Helper()
	packages := packagesIn(t, "../lab")
	maps.Copy(packages, packagesIn(t, ".."))
	return packages
}

// packagesIn asks the Go command what the packages of the module in dir import.
func packagesIn(t *testing.T, dir string) map[string]goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Deps,Standard", "./...")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := map[string]goPackage{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); err == io.EOF {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages[p.ImportPath] = p
	}
}

func ours(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

// TestArrowsPointOneWay compares the imports with the design: producer, consumer and kv do not import each
// other, and only the facade and its engine join them.
func TestArrowsPointOneWay(t *testing.T) {
	t.Parallel()
	may := map[string][]string{
		"internal/schedule/cron":            {"internal/codec", "internal/text/suggest"},
		"job":                               {"internal/schedule/cron", "internal/text/alertbody", "internal/codec", "internal/codec/payload", "internal/text/suggest", "internal/schedule/tzdata"},
		"internal/text/alertbody":           {"internal/codec"},
		"internal/codec":                    {},
		"internal/core/output":              {"job"},
		"internal/core/plans":               {"internal/codec", "internal/text/suggest", "job"},
		"internal/core/exchange":            {"internal/core/output", "internal/codec", "internal/text/suggest", "job"},
		"internal/core":                     {"internal/core/output", "internal/core/exchange", "internal/core/plans", "internal/codec", "internal/text/suggest", "job"},
		"internal/codec/payload":            {"internal/codec", "internal/text/suggest"},
		"internal/text/suggest":             {},
		"internal/schedule/misread":         {"internal/schedule/cron", "job"},
		"internal/schedule/tzdata":          {"internal/codec", "internal/text/suggest"},
		"internal/broker/link":              {},
		"internal/broker/wire":              {"internal/broker/link", "job"},
		"internal/broker/layout":            {"job"},
		"internal/broker/space":             {"internal/broker/layout", "internal/broker/wire", "job"},
		"internal/broker/stream":            {"internal/broker/layout", "internal/broker/space", "internal/broker/wire", "job"},
		"kv":                                {"internal/broker/layout", "internal/broker/space", "internal/broker/stream", "internal/broker/wire", "job"},
		"producer":                          {"job"},
		"consumer/internal/inflight":        {},
		"consumer/internal/pool":            {},
		"consumer":                          {"consumer/internal/inflight", "consumer/internal/pool", "job"},
		"internal/fleet/boot":               {},
		"internal/fleet/clock":              {"internal/fleet/boot"},
		"internal/fleet/node":               {"internal/fleet/boot", "job"},
		"internal/fleet/registry":           {"job"},
		"internal/tracing":                  {"job"},
		"internal/text/plain":               {},
		"internal/jobfile/spec":             {"internal/text/alertbody", "internal/text/plain", "internal/text/suggest", "job"},
		"internal/jobfile":                  {"internal/jobfile/spec", "job"},
		"internal/jobfile/migrate/unitfile": {},
		"internal/jobfile/migrate":          {"internal/jobfile/migrate/unitfile", "internal/jobfile", "internal/jobfile/spec", "job"},
		"internal/check/verify":             {"job"},
		"internal/fleet/sweep":              {"job", "kv"},
		"internal/check/story":              {"internal/attach", "internal/text/suggest", "job", "kv"},
		"internal/attach":                   {"internal/fleet/node", "job", "kv"},
		"internal/check/doctor":             {"internal/check/verify", "job", "kv"},
		"client":                            {"internal/check/doctor", "internal/check/verify", "internal/attach", "internal/fleet/boot", "internal/check/story", "internal/tracing", "job", "kv"},
		"internal/api":                      {"internal/jobfile/spec", "internal/api/fault", "internal/api/row", "internal/api/schema", "client", "internal/attach", "internal/tracing", "job", "kv"},
		"internal/action":                   {"internal/text/plain", "internal/tracing", "job"},
		"internal/action/ready":             {"internal/action"},
		"internal/action/httpaction":        {"internal/action", "internal/jobfile/spec", "job"},
		"internal/action/natsaction":        {"internal/action", "internal/jobfile/spec", "job"},
		"internal/jobfile/reference":        {"internal/action", "internal/jobfile/spec", "job"},
		"internal/action/execaction":        {"internal/action", "internal/action/guard", "internal/jobfile/spec", "internal/tracing", "job"},
		"internal/fleet/alert":              {"internal/action", "internal/text/alertbody", "internal/jobfile/spec", "internal/action/httpaction", "internal/action/natsaction", "job"},
		"internal/fleet/intake":             {"internal/tracing", "job"},
		"internal/fleet/replica": {
			"consumer", "internal/fleet/alert", "internal/fleet/intake", "internal/fleet/boot", "internal/fleet/clock", "internal/fleet/node", "internal/fleet/registry", "internal/fleet/sweep", "internal/tracing", "job", "kv", "producer",
		},
		"lab/bench":                  {"internal/fleet/replica", "job", "kv"},
		"internal/lab/proxy":         {},
		"lab/torture/plan":           {"job"},
		"lab/torture/promise":        {"lab/torture/plan", "job"},
		"lab/torture":                {"internal/lab/proxy", "lab/torture/plan", "lab/torture/promise", "internal/fleet/boot", "client", "internal/attach", "internal/fleet/replica", "job", "kv"},
		"internal/fleet/inject":      {"internal/fleet/clock", "job"},
		"croncetest":                 {module, "internal/fleet/clock", "internal/fleet/inject", "client", "internal/attach", "job", "kv"},
		"":                           {"internal/fleet/clock", "internal/fleet/inject", "internal/api", "client", "internal/attach", "internal/fleet/replica", "internal/text/version", "internal/tracing", "job", "kv", "producer"},
		"internal/api/fault":         {"client", "job", "kv"},
		"internal/api/schema":        {"internal/codec"},
		"internal/api/row":           {"client", "internal/text/printable", "job"},
		"internal/web/api":           {"client", "internal/api/fault", "internal/jobfile/spec", "internal/api/row", "internal/api/schema", "internal/web/problem", "internal/web/stream", "job"},
		"internal/web/reload":        {},
		"internal/web/problem":       {"client", "internal/api/fault", "internal/text/printable"},
		"internal/web/stream":        {},
		"internal/web/secure":        {"internal/api/fault", "internal/web/link", "internal/web/problem"},
		"internal/web/link":          {},
		"internal/web/pages/shell":   {"client", "internal/api/fault", "internal/text/printable", "internal/web/link", "internal/web/problem", "internal/web/stream", "job"},
		"internal/web/pages/board":   {"client", "internal/text/printable", "job"},
		"internal/web/pages/lanes":   {"client", "internal/text/printable", "job"},
		"internal/web/pages/preview": {"internal/schedule/words", "job"},
		"internal/web/pages":         {"client", "internal/api/fault", "internal/schedule/words", "internal/text/printable", "internal/web/pages/board", "internal/web/pages/lanes", "internal/web/pages/preview", "internal/web/pages/shell", "internal/web/problem", "internal/web/stream", "job"},
		"web":                        {"client", "internal/text/version", "internal/web/api", "internal/web/pages", "internal/web/pages/shell", "internal/web/secure"},
		"internal/web/listener":      {"internal/web/reload"},
		"internal/web/auth":          {"internal/text/plain", "internal/api/fault", "internal/web/link", "internal/web/problem", "internal/web/reload", "job"},
		"internal/web/auth/oidc":     {"internal/text/plain", "internal/web/auth"},
		"metrics":                    {module, "job", "producer"},
	}
	packages := listPackages(t)
	for name, allowed := range may {
		path := strings.TrimSuffix(module+"/"+name, "/")
		p, ok := packages[path]
		if !ok {
			t.Errorf("package %s does not exist: mend this list", path)
		}
		for _, imported := range p.Imports {
			pure := imported == module+"/internal/core" || strings.HasPrefix(imported, module+"/internal/core/") && name != "internal/core/exchange" && name != "internal/core/plans" || imported == module+"/internal/codec" || imported == module+"/internal/schedule/tzdata"
			if pure && slices.Contains(allowed, "job") {
				continue // these packages are as pure as package job
			}
			if strings.HasPrefix(imported, module+"/internal/broker/") && slices.Contains(allowed, "kv") {
				continue // the names of what kv returns
			}
			if ours(imported) && !slices.Contains(allowed, strings.TrimPrefix(imported, module+"/")) {
				t.Errorf("%s must not import %s", path, imported)
			}
		}
	}
}

// TestJobIsPure: the rules that every node must compute alike have no clock, no broker
// and no goroutine, and need little of the standard library.
func TestJobIsPure(t *testing.T) {
	t.Parallel()
	packages := listPackages(t)
	for _, pure := range []string{"job", "internal/text/alertbody", "internal/core", "internal/core/exchange", "internal/core/plans", "internal/codec", "internal/schedule/cron", "internal/schedule/tzdata"} {
		for _, imported := range packages[module+"/"+pure].Imports {
			parser := pure == "internal/schedule/cron" && imported == "github.com/robfig/cron/v3"
			if !packages[imported].Standard && !ours(imported) && !parser {
				t.Errorf("%s must not import %s", pure, imported)
			}
			if pure == "job" && imported == "log/slog" {
				continue // for Run.Logger, which the worker makes
			}
			if slices.Contains([]string{"net", "net/http", "os", "os/exec", "math/rand", "math/rand/v2", "crypto/rand", "log/slog"}, imported) {
				t.Errorf("%s must not import %s", pure, imported)
			}
		}
	}
}

// TestPrometheusAndExportersComeOnlyWhenAskedFor: a program that embeds the scheduler links the
// client of Prometheus by importing package metrics, and not otherwise; of
// OpenTelemetry no more than the API, since the SDK and its exporters are the
// program's choice.
func TestPrometheusAndExportersComeOnlyWhenAskedFor(t *testing.T) {
	t.Parallel()
	for path, p := range listPackages(t) {
		if !ours(path) || strings.HasPrefix(path, module+"/cmd/") || strings.HasPrefix(path, module+"/lab/") {
			continue
		}
		for _, dep := range p.Deps {
			client := strings.HasPrefix(dep, "github.com/prometheus/") && path != module+"/metrics"
			if client || strings.HasPrefix(dep, "go.opentelemetry.io/otel/sdk") || strings.HasPrefix(dep, "go.opentelemetry.io/otel/exporters") ||
				strings.HasPrefix(dep, "google.golang.org/grpc") {
				t.Errorf("%s pulls in %s", path, dep)
			}
		}
	}
}

// TestLibraryUsersDoNotLinkWhatOnlyTheBinaryNeeds: a program that embeds the scheduler
// links no YAML parser, no command line, no server, no exporter of traces, and of
// cenkalti/backoff only the version that the product uses.
func TestLibraryUsersDoNotLinkWhatOnlyTheBinaryNeeds(t *testing.T) {
	t.Parallel()
	packages := listPackages(t)
	for _, public := range []string{"", "/job", "/kv", "/producer", "/consumer", "/metrics", "/client", "/web"} {
		for _, dep := range packages[module+public].Deps {
			if strings.HasPrefix(dep, module+"/internal/web/") && public != "/web" {
				t.Errorf("%s links %s", module+public, dep)
			}
			for _, unwanted := range []string{"golang.org/x/oauth2", "github.com/cenkalti/backoff/v5", "go.opentelemetry.io/otel/exporters/", "github.com/goccy/go-yaml", "github.com/spf13/", "github.com/coreos/go-oidc", "github.com/nats-io/nats-server/"} {
				if strings.HasPrefix(dep, unwanted) {
					t.Errorf("%s links %s", module+public, dep)
				}
			}
		}
	}
}

// TestLibraryUsersDoNotGetTheServer: nats-server belongs to the binary and to tests, and to the packages that only they import.
func TestLibraryUsersDoNotGetTheServer(t *testing.T) {
	t.Parallel()
	for path, p := range listPackages(t) {
		if !ours(path) || strings.HasPrefix(path, module+"/cmd/") || strings.HasPrefix(path, module+"/lab/") || strings.HasPrefix(path, module+"/integration") ||
			path == module+"/croncetest" || path == module+"/internal/natsconn/embed" || strings.HasPrefix(path, module+"/internal/lab/") {
			continue
		}
		for _, dep := range p.Deps {
			if strings.HasPrefix(dep, "github.com/nats-io/nats-server/") || dep == "testing" {
				t.Errorf("%s pulls in %s", path, dep)
			}
		}
	}
}
