package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

// KubernetesHead says what the jobs of a cluster do as they did, and what is different.
var KubernetesHead = []string{
	"Imported from Kubernetes CronJobs. Commands start on the machine of \"cronce run\", not in",
	"a container of their image: run the worker from that image, or call the service (action: http).",
}

// The manifest of a CronJob: what decides when and how often it runs is strict, the
// rest of the pod is looked through.
type manifest struct {
	APIVersion string         `yaml:"apiVersion"`
	Kind       string         `yaml:"kind"`
	Metadata   map[string]any `yaml:"metadata"`
	Spec       cronJobSpec    `yaml:"spec"`
	Status     map[string]any `yaml:"status"`
}

type cronJobSpec struct {
	Schedule          string      `yaml:"schedule"`
	TimeZone          string      `yaml:"timeZone"`
	Concurrency       string      `yaml:"concurrencyPolicy"`
	StartingDeadline  *int64      `yaml:"startingDeadlineSeconds"`
	Suspend           bool        `yaml:"suspend"`
	SuccessfulHistory *int        `yaml:"successfulJobsHistoryLimit"`
	FailedHistory     *int        `yaml:"failedJobsHistoryLimit"`
	JobTemplate       jobTemplate `yaml:"jobTemplate"`
}

type jobTemplate struct {
	Metadata map[string]any `yaml:"metadata"`
	Spec     jobSpec        `yaml:"spec"`
}

type jobSpec struct {
	BackoffLimit   *int           `yaml:"backoffLimit"`
	ActiveDeadline *int64         `yaml:"activeDeadlineSeconds"`
	Completions    *int           `yaml:"completions"`
	Parallelism    *int           `yaml:"parallelism"`
	CompletionMode string         `yaml:"completionMode"`
	TTL            *int64         `yaml:"ttlSecondsAfterFinished"`
	Suspend        bool           `yaml:"suspend"`
	Selector       map[string]any `yaml:"selector"`
	ManualSelector bool           `yaml:"manualSelector"`
	PodFailure     map[string]any `yaml:"podFailurePolicy"`
	SuccessPolicy  map[string]any `yaml:"successPolicy"`
	PodReplacement string         `yaml:"podReplacementPolicy"`
	ManagedBy      string         `yaml:"managedBy"`
	PerIndex       *int           `yaml:"backoffLimitPerIndex"`
	MaxFailed      *int           `yaml:"maxFailedIndexes"`
	Template       podTemplate    `yaml:"template"`
}

type podTemplate struct {
	Metadata map[string]any `yaml:"metadata"`
	Spec     map[string]any `yaml:"spec"`
}

// Kubernetes reads manifests, as "kubectl get cronjobs -o yaml" and files have them.
// zone is where schedules are without timeZone, which is that of the controller
// manager. A file that is no YAML is an error; what is no CronJob is passed over.
func Kubernetes(text []byte, zone string) (Result, error) {
	var r Result
	if deep(text) {
		return r, fmt.Errorf("it is nested too deeply to be a manifest")
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		err = errors.New(yaml.FormatError(err, false, true))
		if bytes.Contains(text, []byte("{{")) {
			err = fmt.Errorf("it looks like a template, which is no manifest yet: take what helm template prints\n%w", err)
		}
		return r, err
	}
	for _, doc := range file.Docs {
		r.document(doc.Body, zone)
	}
	return r, nil
}

// deep guards the parser, which recurses.
func deep(text []byte) bool {
	const most = 200
	depth := 0
	for line := range strings.Lines(string(text)) {
		if len(line)-len(strings.TrimLeft(line, " -")) > 10*most {
			return true
		}
	}
	for _, c := range text {
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(0, depth-1)
		}
		if depth > most {
			return true
		}
	}
	return false
}

func (r *Result) document(body ast.Node, zone string) {
	if body == nil || body.Type() == ast.NullType || body.Type() == ast.CommentType {
		return
	}
	line := lineOf(body)
	var head struct {
		Kind  string `yaml:"kind"`
		Items []any  `yaml:"items"`
	}
	if err := yaml.NodeToValue(body, &head); err != nil {
		r.note(line, "", "not carried over: %s", oneLine(err))
		return
	}
	switch {
	case strings.HasSuffix(head.Kind, "List"):
		for _, item := range items(body) {
			r.document(item, zone)
		}
	case head.Kind == "CronJob":
		var m manifest
		if err := yaml.NodeToValue(body, &m, yaml.Strict()); err != nil {
			r.note(line, "", "not carried over: %s", oneLine(err))
			return
		}
		r.cronJob(line, m, zone)
	}
}

func lineOf(n ast.Node) int {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		n = m.Values[0].Key
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 1
}

// items are the elements of a list's "items".
func items(body ast.Node) []ast.Node {
	m, ok := body.(*ast.MappingNode)
	if !ok {
		return nil
	}
	for _, v := range m.Values {
		if s, ok := v.Value.(*ast.SequenceNode); ok && v.Key.GetToken().Value == "items" {
			return s.Values
		}
	}
	return nil
}

func oneLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}

func (r *Result) cronJob(line int, m manifest, zone string) {
	name, _ := m.Metadata["name"].(string)
	s := m.Spec
	j := job.Job{
		Name: strings.Trim(unnamed.ReplaceAllString(name, "-"), "-"), Schedule: s.Schedule, Timezone: zone,
		Retry: job.Retry{Attempts: 7, Backoff: 10 * time.Second, MaxBackoff: 6 * time.Minute}, // as a backoffLimit of 6
	}
	elapsed(&j)
	if s.TimeZone != "" {
		j.Timezone = s.TimeZone
	}
	for _, prefix := range []string{"CRON_TZ=", "TZ="} {
		if rest, ok := strings.CutPrefix(j.Schedule, prefix); ok {
			j.Timezone, j.Schedule, _ = strings.Cut(rest, " ")
		}
	}
	var ok bool
	if j.Overlap, ok = map[string]job.Overlap{"": job.OverlapAllow, "Allow": job.OverlapAllow, "Forbid": job.OverlapSkip, "Replace": job.OverlapReplace}[s.Concurrency]; !ok {
		r.note(line, name, "not carried over: concurrencyPolicy %q: want Allow, Forbid or Replace", s.Concurrency)
		return
	}
	if s.StartingDeadline != nil {
		j.Deadline = time.Duration(*s.StartingDeadline) * time.Second
		j.CatchUp = job.CatchUp{Policy: job.CatchUpLatest, Within: j.Deadline}
	}
	if n := s.JobTemplate.Spec.BackoffLimit; n != nil {
		j.Retry.Attempts = *n + 1
	}
	if n := s.JobTemplate.Spec.ActiveDeadline; n != nil {
		j.Timeout = time.Duration(*n) * time.Second
	}
	exec, lacks := command(s.JobTemplate.Spec.Template.Spec)
	if len(exec.Args) == 0 {
		r.note(line, name, "not carried over: %s", strings.Join(lacks, ", "))
		return
	}
	before := len(r.Jobs)
	r.add(line, jobfile.Imported{Job: j, Exec: exec, Line: line, Comments: []string{fmt.Sprintf("line %d: CronJob %s", line, clip(name))}})
	if len(r.Jobs) == before {
		return
	}
	r.cronJobNotes(line, r.Jobs[before].Job.Name, name, s, lacks)
}

// cronJobNotes says what of a job that was carried over was not.
func (r *Result) cronJobNotes(line int, name, was string, s cronJobSpec, lacks []string) {
	spec := s.JobTemplate.Spec
	if name != was {
		r.note(line, name, "its name was %s", was)
	}
	if s.StartingDeadline != nil && *s.StartingDeadline == 0 {
		r.note(line, name, "startingDeadlineSeconds 0 leaves Kubernetes no time to start it; here it has no deadline")
	}
	if s.Suspend || spec.Suspend {
		r.note(line, name, "it is suspended, and a file cannot say so: after cronce job apply, cronce job pause %s", name)
	}
	if strings.HasPrefix(s.Schedule, "@every") {
		r.note(line, name, "%s counts from 1970, not from when the CronJob was created", s.Schedule)
	}
	if spec.ActiveDeadline != nil && (spec.BackoffLimit == nil || *spec.BackoffLimit > 0) {
		r.note(line, name, "activeDeadlineSeconds bounds each attempt, not all of them together")
	}
	more := func(n *int) bool { return n != nil && *n > 1 }
	if more(spec.Completions) || more(spec.Parallelism) {
		r.note(line, name, "completions and parallelism: one run each time; shards: N splits a slot into N parts")
	}
	if spec.PodFailure != nil || spec.SuccessPolicy != nil || spec.PerIndex != nil {
		r.note(line, name, "its failure policies: exit status 65 fails for good, 0 succeeds, every other is tried again")
	}
	if len(lacks) > 0 {
		r.note(line, name, "not carried over: %s", strings.Join(lacks, ", "))
	}
}

// command is what the pod's container starts, and what else of the pod a job has not.
func command(pod map[string]any) (e spec.Exec, lacks []string) {
	containers, _ := pod["containers"].([]any)
	if len(containers) != 1 {
		return e, []string{fmt.Sprintf("%d containers; an action is one command", len(containers))}
	}
	c, _ := containers[0].(map[string]any)
	program, right := texts(c["command"])
	args, argsRight := texts(c["args"])
	switch {
	case !right || !argsRight:
		return e, []string{"its command is no list of texts"}
	case len(program) == 0:
		return e, []string{fmt.Sprintf("it has no command, and what the image %v starts is not known here: write command: into the manifest", c["image"])}
	}
	e.Args = append(program, args...)
	e.Env, lacks = environment(c["env"])
	if dir, _ := c["workingDir"].(string); strings.HasPrefix(dir, "/") {
		e.Dir = dir
		delete(c, "workingDir")
	}
	if slices.ContainsFunc(e.Args, func(a string) bool { return strings.Contains(a, "$(") }) {
		lacks = append(lacks, "what $(NAME) stands for in the command")
	}
	accounts(&e, pod, c)
	for _, name := range sortedKeys(c) {
		if !slices.Contains([]string{"name", "command", "args", "env", "imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy"}, name) {
			lacks = append(lacks, describe(name, c[name]))
		}
	}
	for _, name := range sortedKeys(pod) {
		if !slices.Contains([]string{"containers", "restartPolicy", "dnsPolicy", "schedulerName", "terminationGracePeriodSeconds"}, name) {
			lacks = append(lacks, describe(name, pod[name]))
		}
	}
	return e, lacks
}

// accounts carries over the user and the group of the container, or else of its pod.
func accounts(e *spec.Exec, pod, container map[string]any) {
	for _, of := range []map[string]any{pod, container} {
		context, _ := of["securityContext"].(map[string]any)
		for name, to := range map[string]*string{"runAsUser": &e.User, "runAsGroup": &e.Group} {
			if id, set := context[name]; set && spec.IsAccount(fmt.Sprint(id)) {
				*to = fmt.Sprint(id)
				delete(context, name)
			}
		}
		delete(context, "runAsNonRoot")
		if context != nil && len(context) == 0 {
			delete(of, "securityContext")
		}
	}
}

func describe(name string, value any) string {
	if text, ok := value.(string); ok {
		return name + " " + text
	}
	return name
}

func texts(value any) (list []string, ok bool) {
	if value == nil {
		return nil, true
	}
	all, ok := value.([]any)
	for _, v := range all {
		text, is := v.(string)
		ok = ok && is
		list = append(list, text)
	}
	return list, ok
}

// environment are the variables that are written out, and the names of the others.
func environment(value any) (variables []spec.Variable, lacks []string) {
	all, _ := value.([]any)
	for _, v := range all {
		m, _ := v.(map[string]any)
		name, _ := m["name"].(string)
		if m["valueFrom"] != nil {
			lacks = append(lacks, "the variable "+name+", which is not written out")
			continue
		}
		text, _ := m["value"].(string)
		if !settable(name, text) {
			lacks = append(lacks, "the variable "+name)
			continue
		}
		variables = append(variables, spec.Variable{Name: name, Value: text})
	}
	return variables, lacks
}

func sortedKeys(m map[string]any) []string {
	var names []string
	for name, value := range m {
		if value != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
