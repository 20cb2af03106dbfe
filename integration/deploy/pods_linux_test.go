package deploy_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
	"golang.org/x/crypto/bcrypt"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"

	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

const token = "0123456789abcdef"

// secrets returns the values of all secrets, by their keys.
func secrets(t *testing.T) map[string]string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(token), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	account, accountErr := nkeys.CreateAccount()
	user, userErr := nkeys.CreateUser()
	if accountErr != nil || userErr != nil {
		t.Fatal(accountErr, userErr)
	}
	public, err := user.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	login, err := jwt.NewUserClaims(public).Encode(account)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	creds, err := jwt.FormatUserConfig(login, seed)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{"creds": string(creds), "tokens": "alice:" + token + "\n", "htpasswd": "alice:" + string(hash) + "\n"}
}

// The test starts the commands of the manifests with their arguments, environment and files, on loopback. The NATS server
// has neither TLS nor logins, and ignores the logins that it gets.
func TestCommandsOfPodsStartAndAnswerTheirProbes(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t, func(o *server.Options) { o.JetStreamDomain = "fleet" })
	for name, text := range manifests(t) {
		if name == "dashboard" {
			continue // it needs an OpenID provider, and a server that asks for an nkey
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := objects(t, text)
			p := podRunner{t, all, secrets(t), s.ClientURL(), "set-" + strings.ReplaceAll(name, " ", "-")}
			for _, j := range only[*batch.Job](all) {
				b, c := p.box(newLoopback(t, name), name, j.Spec.Template.Spec)
				args := slices.Clone(c.Args)
				if i := slices.Index(args, "--replicas=3"); i >= 0 {
					args[i] = "--replicas=1" // there is one server
				}
				if code := b.start(built(t, "cronce"), args...).exit(); code != 0 {
					t.Errorf("%s ends with %d", j.Name, code)
				}
			}
			var hosts []string
			for _, d := range only[*apps.Deployment](all) {
				hosts = append(hosts, d.Name)
			}
			slices.Reverse(hosts) // workers first, since they create the namespace that the dashboard opens
			l := newLoopback(t, hosts...)
			for _, host := range hosts {
				for _, d := range only[*apps.Deployment](all) {
					if d.Name == host {
						p.deployment(l, d)
					}
				}
			}
		})
	}
}

// podRunner starts the commands of the pods in a set of manifests.
type podRunner struct {
	t                 *testing.T
	all               []object
	secrets           map[string]string
	server, namespace string
}

// deployment starts one pod of a deployment, and waits until its probes succeed.
func (r podRunner) deployment(l *loopback, d *apps.Deployment) {
	r.t.Helper()
	b, c := r.box(l, d.Name, d.Spec.Template.Spec)
	p := b.start(built(r.t, "cronce"), slices.Clone(c.Args)...)
	for _, probe := range []*core.Probe{c.LivenessProbe, c.ReadinessProbe} {
		if probe == nil {
			continue
		}
		i := slices.IndexFunc(c.Ports, func(port core.ContainerPort) bool { return port.Name == probe.HTTPGet.Port.StrVal })
		url := b.mapped("http://localhost:9464" + probe.HTTPGet.Path)
		if c.Ports[i].ContainerPort != 9464 {
			r.t.Errorf("%s: a probe asks port %d", d.Name, c.Ports[i].ContainerPort)
		}
		natstest.Eventually(r.t, url+" to be 200", func() bool {
			status, _ := get(r.t, url)
			return status == 200
		})
	}
	if c.Args[0] == "ui" {
		url := b.mapped("http://localhost:8080/api/v1/jobs")
		if status, body := get(r.t, url); status != 401 {
			r.t.Errorf("without a login: %d %s", status, body)
		}
		if slices.Contains(c.Args, "--http-token-file=/etc/cronce/access/tokens") {
			if status, body := get(r.t, url, "Authorization", "Bearer "+token); status != 200 {
				r.t.Errorf("with a token: %d %s", status, body)
			}
		}
		// The service and the ingress use this port.
		if !slices.ContainsFunc(c.Ports, func(p core.ContainerPort) bool { return p.Name == "http" && p.ContainerPort == 8080 }) {
			r.t.Errorf("%s has ports %v", d.Name, c.Ports)
		}
		defer func() {
			if code := p.term(); code != 0 {
				r.t.Errorf("%s ends with %d after TERM", d.Name, code)
			}
		}()
		return
	}
	at := slices.IndexFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--grace=") })
	grace, err := time.ParseDuration(strings.TrimPrefix(c.Args[at], "--grace="))
	if limit := *d.Spec.Template.Spec.TerminationGracePeriodSeconds; err != nil || grace > time.Duration(limit-10)*time.Second {
		r.t.Errorf("%s gives running slots %v, and is killed after %d s", d.Name, grace, limit)
	}
	r.t.Cleanup(func() {
		if code := p.term(); code != 0 {
			r.t.Errorf("%s ends with %d after TERM", d.Name, code)
		}
	})
}

// box returns the container of cronce in a pod.
func (r podRunner) box(l *loopback, host string, spec core.PodSpec) (*box, core.Container) {
	r.t.Helper()
	i := slices.IndexFunc(spec.Containers, func(c core.Container) bool { return c.Name == "cronce" })
	if i < 0 {
		r.t.Fatalf("%s has no container cronce", host)
	}
	c, b := spec.Containers[i], l.box(host)
	for _, m := range c.VolumeMounts {
		for _, v := range spec.Volumes {
			if v.Name == m.Name {
				r.fill(b, m.MountPath, v)
			}
		}
	}
	for _, e := range c.Env {
		switch {
		case strings.HasPrefix(e.Name, "CRONCE_TLS"):
			continue
		case e.Name == "CRONCE_SERVER":
			e.Value = r.server
		case e.Name == "CRONCE_NAMESPACE":
			e.Value = r.namespace
		case e.ValueFrom != nil:
			e.Value = token
		default:
			e.Value = b.mapped(e.Value)
		}
		b.env = append(b.env, e.Name+"="+e.Value)
	}
	if !slices.ContainsFunc(c.Env, func(e core.EnvVar) bool { return e.Name == "CRONCE_NAMESPACE" }) {
		b.env = append(b.env, "CRONCE_NAMESPACE="+r.namespace)
	}
	return b, c
}

// fill writes the files of a volume.
func (r podRunner) fill(b *box, target string, v core.Volume) {
	r.t.Helper()
	b.mount(target, "")
	files := map[string]string{}
	switch {
	case v.ConfigMap != nil:
		files["jobs.yaml"] = "version: 1\njobs:\n  - {name: make, schedule: '@hourly', action: {exec: [/bin/true]}}\n" // that of own-image
		for _, c := range only[*core.ConfigMap](r.all) {
			if c.Name == v.ConfigMap.Name {
				files = c.Data
			}
		}
	case v.Secret != nil:
		files = r.secrets
	}
	for name, text := range files {
		filetest.Write(r.t, filepath.Join(b.paths[target], name), text)
	}
}
