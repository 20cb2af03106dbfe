package deploy_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// object is any object of Kubernetes.
type object interface {
	GetName() string
	GetNamespace() string
	GetLabels() map[string]string
}

// kinds has the Go types of all kinds of objects that the manifests may have.
var kinds = map[string]func() object{
	"apps/v1 Deployment":                      func() object { return new(apps.Deployment) },
	"batch/v1 Job":                            func() object { return new(batch.Job) },
	"v1 ConfigMap":                            func() object { return new(core.ConfigMap) },
	"v1 Service":                              func() object { return new(core.Service) },
	"v1 ServiceAccount":                       func() object { return new(core.ServiceAccount) },
	"policy/v1 PodDisruptionBudget":           func() object { return new(policy.PodDisruptionBudget) },
	"networking.k8s.io/v1 Ingress":            func() object { return new(networking.Ingress) },
	"networking.k8s.io/v1 NetworkPolicy":      func() object { return new(networking.NetworkPolicy) },
	"monitoring.coreos.com/v1 ServiceMonitor": func() object { return new(monitoring.ServiceMonitor) },
	"monitoring.coreos.com/v1 PrometheusRule": func() object { return new(monitoring.PrometheusRule) },
}

var between = regexp.MustCompile(`(?m)^---\n`)

// objects reads manifests as the API server reads them with strict validation: an unknown or
// doubled field is an error.
func objects(t *testing.T, text string) (all []object) {
	t.Helper()
	for _, doc := range between.Split(text, -1) {
		var kind meta.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		if kind.Kind == "" {
			if strings.Trim(regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString(doc, ""), "\n ") != "" {
				t.Fatalf("no kind:\n%s", doc)
			}
			continue
		}
		typed, known := kinds[kind.APIVersion+" "+kind.Kind]
		if !known {
			t.Fatalf("unknown kind %v", kind)
		}
		o := typed()
		if err := yaml.UnmarshalStrict([]byte(doc), o); err != nil {
			t.Errorf("%s: %v\n%s", kind, err, doc)
		}
		all = append(all, o)
	}
	if len(all) == 0 {
		t.Fatal("no objects")
	}
	return all
}

// only returns the objects of one type.
func only[T any](all []object) (found []T) {
	for _, o := range all {
		if typed, ok := o.(T); ok {
			found = append(found, typed)
		}
	}
	return found
}

// template is what an object says of its pods.
type template struct {
	of  string
	pod core.PodTemplateSpec
}

func templates(all []object) (found []template) {
	for _, d := range only[*apps.Deployment](all) {
		found = append(found, template{d.Name, d.Spec.Template})
	}
	for _, j := range only[*batch.Job](all) {
		found = append(found, template{j.Name, j.Spec.Template})
	}
	return found
}

// manifests returns all manifests of the project, by the name of the set of values, or of the file.
func manifests(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"plain manifests": string(filetest.Read(t, plainFile)), "sidecar": string(filetest.Read(t, sidecarFile))}
	for _, set := range sets {
		all[set] = rendered(t, set)
	}
	return all
}

const sidecarFile = "../../deploy/kubernetes/sidecar.yaml"

func TestManifestsAreStrictlyValid(t *testing.T) {
	t.Parallel()
	for name, text := range manifests(t) {
		for _, o := range objects(t, text) {
			if o.GetName() == "" || name != "sidecar" && o.GetNamespace() == "" {
				t.Errorf("%s: an object without a name or a namespace: %v", name, o)
			}
			if o.GetLabels()["app.kubernetes.io/name"] == "" && name != "sidecar" {
				t.Errorf("%s: %s has no labels", name, o.GetName())
			}
		}
	}
}

// To Kubernetes, a key without a value is absent. A reader would take it for set.
func TestManifestsHaveNoKeyWithoutAValue(t *testing.T) {
	t.Parallel()
	for name, text := range manifests(t) {
		for _, doc := range between.Split(text, -1) {
			var o any
			if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if m, ok := o.(map[string]any); ok {
				for _, path := range withoutValue(m) {
					t.Errorf("%s: %v has no value at %s", name, m["metadata"], path)
				}
			}
		}
	}
}

// withoutValue returns the paths of the keys below v whose value is null.
func withoutValue(v any) (paths []string) {
	below := func(key string, v any) {
		if v == nil {
			paths = append(paths, key)
		}
		for _, path := range withoutValue(v) {
			paths = append(paths, key+"."+path)
		}
	}
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			below(key, value)
		}
	case []any:
		for i, value := range v {
			below(strconv.Itoa(i), value)
		}
	}
	return paths
}

// Every pod passes the Pod Security Standard "restricted", and has a read-only root, limits of its resources, and no
// token of Kubernetes.
func TestPodsOfManifestsMayDoLittle(t *testing.T) {
	t.Parallel()
	for name, text := range manifests(t) {
		for _, tpl := range templates(objects(t, text)) {
			spec := tpl.pod.Spec
			if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken || spec.HostNetwork || spec.HostPID || spec.HostIPC {
				t.Errorf("%s: %s has a token, or a namespace of its host", name, tpl.of)
			}
			s := spec.SecurityContext
			if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
				t.Errorf("%s: %s has security context %v", name, tpl.of, s)
			}
			for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
				s := c.SecurityContext
				if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
					s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
					t.Errorf("%s: container %s of %s has security context %v", name, c.Name, tpl.of, s)
				}
				if r := c.Resources; r.Limits.Memory().IsZero() || r.Requests.Memory().IsZero() || r.Requests.Cpu().IsZero() {
					t.Errorf("%s: container %s of %s has resources %v", name, c.Name, tpl.of, r)
				}
			}
			for _, v := range spec.Volumes {
				if v.HostPath != nil {
					t.Errorf("%s: %s mounts %s of its host", name, tpl.of, v.HostPath.Path)
				}
			}
		}
	}
}

// Whatever an object selects, names or mounts exists.
func TestObjectsOfManifestsFitTogether(t *testing.T) {
	t.Parallel()
	for name, text := range manifests(t) {
		all := objects(t, text)
		pods := templates(all)
		selects := func(by string, selector map[string]string, want int) {
			n := 0
			for _, tpl := range pods {
				if labels.SelectorFromSet(selector).Matches(labels.Set(tpl.pod.Labels)) {
					n++
				}
			}
			if n != want || len(selector) == 0 {
				t.Errorf("%s: %s selects the pods of %d objects, want %d", name, by, n, want)
			}
		}
		for _, d := range only[*apps.Deployment](all) {
			selects("deployment "+d.Name, d.Spec.Selector.MatchLabels, 1)
		}
		for _, b := range only[*policy.PodDisruptionBudget](all) {
			selects("budget "+b.Name, b.Spec.Selector.MatchLabels, 1)
		}
		for _, p := range only[*networking.NetworkPolicy](all) {
			selects("policy "+p.Name, p.Spec.PodSelector.MatchLabels, 1)
		}
		services := map[string]*core.Service{}
		for _, s := range only[*core.Service](all) {
			services[s.Name] = s
			selects("service "+s.Name, s.Spec.Selector, 1)
		}
		for _, i := range only[*networking.Ingress](all) {
			if b := i.Spec.Rules[0].HTTP.Paths[0].Backend.Service; services[b.Name] == nil || services[b.Name].Spec.Ports[0].Name != b.Port.Name {
				t.Errorf("%s: the ingress leads to %v", name, b)
			}
		}
		for _, m := range only[*monitoring.ServiceMonitor](all) {
			n := 0
			for _, s := range services {
				if labels.SelectorFromSet(m.Spec.Selector.MatchLabels).Matches(labels.Set(s.Labels)) && s.Spec.Ports[0].Name == m.Spec.Endpoints[0].Port {
					n++
				}
			}
			if n != len(only[*apps.Deployment](all)) || !m.Spec.Endpoints[0].HonorLabels {
				t.Errorf("%s: the service monitor finds %d services: %+v", name, n, m.Spec)
			}
		}
		for _, tpl := range pods {
			checkPod(t, name, all, tpl)
		}
	}
}

// checkPod checks that what a pod refers to exists.
func checkPod(t *testing.T, name string, all []object, tpl template) {
	t.Helper()
	volumes := map[string]bool{}
	for _, v := range tpl.pod.Spec.Volumes {
		volumes[v.Name] = true
		if v.ConfigMap != nil && v.ConfigMap.Name != "shop-jobs" && !slices.ContainsFunc(only[*core.ConfigMap](all), func(c *core.ConfigMap) bool { return c.Name == v.ConfigMap.Name }) {
			t.Errorf("%s: %s mounts config map %s, which is not there", name, tpl.of, v.ConfigMap.Name)
		}
	}
	mounted := map[string]bool{}
	for _, c := range tpl.pod.Spec.Containers {
		for _, m := range c.VolumeMounts {
			mounted[m.Name] = true
			if !volumes[m.Name] {
				t.Errorf("%s: %s mounts volume %s, which is not there", name, tpl.of, m.Name)
			}
		}
		for _, p := range []*core.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			if p != nil && !slices.ContainsFunc(c.Ports, func(port core.ContainerPort) bool { return port.Name == p.HTTPGet.Port.StrVal }) {
				t.Errorf("%s: a probe of %s asks port %v, which is not there", name, tpl.of, p.HTTPGet.Port)
			}
		}
		for _, arg := range c.Args {
			if _, path, found := strings.Cut(arg, "=/"); found && !slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return strings.HasPrefix("/"+path, m.MountPath+"/") }) {
				t.Errorf("%s: %s of %s is in no volume", name, arg, tpl.of)
			}
		}
	}
	for v := range volumes {
		if !mounted[v] {
			t.Errorf("%s: no container of %s mounts volume %s", name, tpl.of, v)
		}
	}
	account := tpl.pod.Spec.ServiceAccountName
	if account != "" && account != "shop" && !slices.ContainsFunc(only[*core.ServiceAccount](all), func(a *core.ServiceAccount) bool { return a.Name == account }) {
		t.Errorf("%s: %s runs as service account %s, which is not there", name, tpl.of, account)
	}
}

func TestChartHasTheRulesAndTheDashboard(t *testing.T) {
	t.Parallel()
	all := objects(t, rendered(t, "monitoring"))
	var want struct{ Groups any }
	if err := yaml.Unmarshal(filetest.Read(t, "../../deploy/prometheus/cronce.rules.yaml"), &want); err != nil {
		t.Fatal(err)
	}
	got := asJSON(t, only[*monitoring.PrometheusRule](all)[0].Spec.Groups)
	if len(got) < 1000 || got != asJSON(t, want.Groups) {
		t.Errorf("the rules of the chart are\n%s\nwant\n%s", got, asJSON(t, want.Groups))
	}
	if got := only[*core.ConfigMap](all)[0].Data["cronce.json"]; strings.TrimSpace(got) != strings.TrimSpace(string(filetest.Read(t, "../../deploy/grafana/cronce.json"))) {
		t.Error("the dashboard of the chart is not that of deploy/grafana")
	}
}

// asJSON returns a value as JSON with sorted keys.
func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var plain any
	if err := json.Unmarshal(data, &plain); err != nil {
		t.Fatal(err)
	}
	data, err = json.Marshal(plain)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
