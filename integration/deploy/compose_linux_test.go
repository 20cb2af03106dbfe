package deploy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"sigs.k8s.io/yaml"

	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

const composeFile = "../../deploy/compose/compose.yaml"

func composed(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{composeFile})
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

func TestComposeFileIsRestricted(t *testing.T) {
	t.Parallel()
	for name, s := range composed(t).Services {
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) || s.MemLimit == 0 || s.Privileged {
			t.Errorf("%s may do more than it needs", name)
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes port %s on %q: other machines reach it", name, p.Published, p.HostIP)
			}
		}
		if image, tag, _ := strings.Cut(s.Image, ":"); tag == "" || tag == "latest" {
			t.Errorf("%s uses %s without a version", name, image)
		}
	}
}

// composition runs the services of a Compose file on loopback.
type composition struct {
	*loopback
	project *types.Project
	running map[string]*program
}

// The test starts the command of each service with its arguments, environment and files. As with Compose, a service
// starts after those that it depends on.
func TestComposeFleetRunsSlotsWithoutAReplicaAndAServer(t *testing.T) {
	t.Parallel()
	project := composed(t)
	c := &composition{newLoopback(t, project.ServiceNames()...), project, map[string]*program{}}
	for _, name := range []string{"cronce-1", "cronce-2", "cronce-3", "dashboard"} {
		c.up(name)
	}
	dashboard := "http://" + c.address("dashboard") + ":8080/api/v1/"
	c.published("dashboard", 8080)
	type rows struct {
		Rows []struct{ Job, State, Node, Output, Error string }
	}
	answers(t, dashboard+"nodes", func(r rows) bool {
		return len(r.Rows) == 3 && !slices.ContainsFunc(r.Rows, func(n struct{ Job, State, Node, Output, Error string }) bool { return n.State != "alive" })
	})
	hello := func(n int) func(rows) bool {
		return func(r rows) bool { return len(r.Rows) >= n }
	}
	answers(t, dashboard+"slots?job=hello&state=succeeded", hello(1))
	if status, body := get(t, "http://"+c.address("dashboard")+":8080/jobs/hello"); status != 200 || !strings.Contains(body, "</html>") {
		t.Errorf("the dashboard: %d %s", status, body)
	}
	b := c.prepared("cronce-1")
	if p := b.start(built(t, "cronce"), "job", "trigger", "accounted-for", "--wait"); p.exit() != 0 {
		t.Error("the job accounted-for does not succeed")
	}
	t.Run("prometheus", func(t *testing.T) { c.prometheus(t) })

	// The slots go on without a replica and a server.
	for _, name := range []string{"cronce-2", "nats-1"} {
		if err := c.running[name].cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-c.running[name].ended
		delete(c.running, name)
	}
	var before rows
	answers(t, dashboard+"slots?job=hello&state=succeeded", func(r rows) bool { before = r; return true })
	answers(t, dashboard+"slots?job=hello&state=succeeded", hello(len(before.Rows)+1))
	for _, name := range []string{"cronce-1", "cronce-3", "dashboard"} {
		if code := c.running[name].term(); code != 0 {
			t.Errorf("%s ends with %d", name, code)
		}
	}
}

// up starts a service. Before that, it starts those that the service depends on, and waits for their conditions.
func (c *composition) up(name string) {
	c.t.Helper()
	if c.running[name] != nil {
		return
	}
	s := c.project.Services[name]
	for on, dependency := range s.DependsOn {
		c.up(on)
		switch dependency.Condition {
		case types.ServiceConditionCompletedSuccessfully:
			if code := c.running[on].exit(); code != 0 {
				c.t.Fatalf("%s ends with %d", on, code)
			}
		case types.ServiceConditionHealthy:
			c.healthy(on)
		}
	}
	b := c.prepared(name)
	path := map[string]string{"nats": "nats-server", "ghcr.io/cronce-io/cronce": "cronce"}[image(s)]
	command := slices.Clone(s.Command)
	if path == "nats-server" { // the entrypoint of the image starts the program that the command names first
		if command[0] != path {
			c.t.Fatalf("%s starts %v", name, command)
		}
		command = command[1:]
	}
	c.running[name] = b.start(built(c.t, path), command...)
}

func image(s types.ServiceConfig) string {
	name, _, _ := strings.Cut(s.Image, ":")
	return name
}

// prepared returns the container of a service, with its files and its environment.
func (c *composition) prepared(name string) *box {
	c.t.Helper()
	s := c.project.Services[name]
	b := c.box(name)
	b.paths["/usr/bin/cronce"] = built(c.t, "cronce")
	var files []types.ServiceVolumeConfig
	for _, v := range s.Volumes {
		if v.Type == types.VolumeTypeBind {
			files = append(files, v)
			b.paths[v.Target] = filepath.Join(b.dir, b.host, v.Target)
			continue
		}
		if _, known := c.project.Volumes[v.Source]; !known {
			c.t.Errorf("%s mounts volume %s, which the file does not define", name, v.Source)
		}
		b.mount(v.Target, "")
	}
	for _, v := range files {
		b.mount(v.Target, v.Source)
	}
	for key, value := range s.Environment {
		b.env = append(b.env, key+"="+b.mapped(*value))
	}
	return b
}

// healthy waits until the health check of a service succeeds.
func (c *composition) healthy(name string) {
	c.t.Helper()
	test := c.project.Services[name].HealthCheck.Test
	if !slices.Equal(test[:4], []string{"CMD", "wget", "-q", "--spider"}) {
		c.t.Fatalf("%s: this test cannot do the health check %v", name, test)
	}
	// A server is healthy only when it has found the others, so all must run.
	for other, s := range c.project.Services {
		if image(s) == image(c.project.Services[name]) {
			c.up(other)
		}
	}
	url := c.box(name).mapped(test[4])
	natstest.Eventually(c.t, name+" to be healthy", func() bool {
		status, _ := get(c.t, url)
		return status == 200
	})
}

// published checks that the file publishes a port of the service.
func (c *composition) published(name string, target uint32) {
	c.t.Helper()
	if !slices.ContainsFunc(c.project.Services[name].Ports, func(p types.ServicePortConfig) bool { return p.Target == target }) {
		c.t.Errorf("%s does not publish %d", name, target)
	}
}

// prometheus starts a real Prometheus. It scrapes the three replicas, and can evaluate all rules.
func (c *composition) prometheus(t *testing.T) {
	path := needCommand(t, "prometheus")
	c.published("prometheus", 9090)
	own := *c.loopback
	own.t = t // Prometheus ends with the subtest
	b := (&composition{&own, c.project, c.running}).prepared("prometheus")
	b.start(path, slices.Clone(c.project.Services["prometheus"].Command)...)
	at := "http://" + c.address("prometheus") + ":9090/api/v1/"
	type value struct {
		Data struct{ Result []struct{ Value []any } }
	}
	answers(t, at+"query?query=count(cronce_node_trust_seconds)", func(v value) bool {
		return len(v.Data.Result) == 1 && v.Data.Result[0].Value[1] == "3"
	})
	answers(t, at+`query?query=count(cronce_slot_outcomes_total{job="hello"})`, func(v value) bool { return len(v.Data.Result) == 1 })
	type rules struct {
		Data struct {
			Groups []struct{ Rules []struct{ Health string } }
		}
	}
	answers(t, at+"rules", func(r rules) bool {
		for _, g := range r.Data.Groups {
			for _, rule := range g.Rules {
				if rule.Health != "ok" {
					return false
				}
			}
		}
		return len(r.Data.Groups) == 2
	})
}

// The test does not start Grafana. It checks that the files for Grafana have the right form, and name the other
// services.
func TestProvisioningOfGrafanaLeadsToPrometheusAndTheDashboard(t *testing.T) {
	t.Parallel()
	project := composed(t)
	grafana := project.Services["grafana"]
	mounted := map[string]string{}
	for _, v := range grafana.Volumes {
		mounted[v.Target] = v.Source
	}
	var sources struct {
		APIVersion  int `json:"apiVersion"`
		Datasources []struct {
			Name, UID, Type, Access, URL string
			IsDefault                    bool           `json:"isDefault"`
			JSONData                     map[string]any `json:"jsonData"`
		}
	}
	strictly(t, mounted["/etc/grafana/provisioning/datasources/cronce.yaml"], &sources)
	if sources.APIVersion != 1 || len(sources.Datasources) != 1 || sources.Datasources[0].Type != "prometheus" || !sources.Datasources[0].IsDefault {
		t.Errorf("datasources: %+v", sources)
	}
	host, port, _ := strings.Cut(strings.TrimPrefix(sources.Datasources[0].URL, "http://"), ":")
	if project.Services[host].Image == "" || !slices.Contains(project.Services[host].Command, "--web.listen-address=:"+port) {
		t.Errorf("the datasource leads to %s, where no service listens", sources.Datasources[0].URL)
	}
	var providers struct {
		APIVersion int `json:"apiVersion"`
		Providers  []struct {
			Name, Type            string
			UpdateIntervalSeconds int `json:"updateIntervalSeconds"`
			Options               struct{ Path string }
		}
	}
	strictly(t, mounted["/etc/grafana/provisioning/dashboards/cronce.yaml"], &providers)
	if providers.APIVersion != 1 || len(providers.Providers) != 1 || providers.Providers[0].Type != "file" {
		t.Fatalf("dashboards: %+v", providers)
	}
	dashboard := providers.Providers[0].Options.Path + "/cronce.json"
	if home := grafana.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]; home == nil || *home != dashboard {
		t.Errorf("the first page is %v, want %s", home, dashboard)
	}
	text, err := os.ReadFile(mounted[dashboard])
	var form struct{ UID, Title string }
	if err != nil || json.Unmarshal(text, &form) != nil || form.Title != "Cronce" {
		t.Errorf("%s is no dashboard: %v", mounted[dashboard], err)
	}
}

func strictly(t *testing.T, path string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(filetest.Read(t, path), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
