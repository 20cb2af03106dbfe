package migrate

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

// Kubernetes reads manifests, like the output of "kubectl get cronjobs -o yaml". zone is the time
// zone of schedules without timeZone: that of the controller manager. It skips objects that are not
// CronJobs. It returns an error if the file is not YAML.
func Kubernetes(text []byte, zone string) (Result, error) {
	var r Result
	file, err := parseYAML(text, "a manifest")
	if err != nil && bytes.Contains(text, []byte("{{")) {
		err = fmt.Errorf("it looks like a template and not a manifest: import the output of helm template\n%w", err)
	}
	if err != nil {
		return r, err
	}
	for _, doc := range withContent(file) {
		r.document(doc, "", zone)
	}
	return r, nil
}

// document reads an object. If it names no kind, it has the given one, as the items of a list of the API.
func (r *Result) document(body ast.Node, kind, zone string) {
	if body.Type() == ast.NullType {
		return
	}
	line := lineOf(body)
	if n := member(body, "kind"); n != nil {
		kind, _ = textOf(n)
	}
	switch {
	case kind == "":
		r.note(line, "", "not carried over: it is not an object of Kubernetes with a kind")
	case strings.HasSuffix(kind, "List"):
		items, isList := member(body, "items").(*ast.SequenceNode)
		if !isList {
			r.note(line, "", "not carried over: %s has no list of items", clip(kind))
			return
		}
		for _, item := range items.Values {
			r.document(item, strings.TrimSuffix(kind, "List"), zone)
		}
	case kind == "CronJob":
		m, problem, at := readManifest(body)
		if problem != "" {
			name, _ := m.Metadata["name"].(string)
			r.note(at, name, "not carried over: %s", problem)
			return
		}
		r.cronJob(line, m, zone)
	default:
		spec := member(body, "spec")
		for _, key := range []string{"schedule", "schedules", "jobTemplate"} {
			if member(spec, key) != nil {
				r.note(line, "", "not carried over: its spec has %s, and its kind is %q: only a CronJob is read", key, clip(kind))
				return
			}
		}
	}
}

func (r *Result) cronJob(line int, m manifest, zone string) {
	name, _ := m.Metadata["name"].(string)
	s := m.Spec
	j := job.Job{
		Name: strings.Trim(unnamed.ReplaceAllString(name, "-"), "-"), Schedule: s.Schedule, Timezone: zone,
		Retry: job.Retry{Attempts: 7, Backoff: 10 * time.Second, MaxBackoff: 6 * time.Minute}, // as a backoffLimit of 6
	}
	setElapsed(&j)
	if s.TimeZone != "" {
		j.Timezone = s.TimeZone
	}
	for _, prefix := range []string{"CRON_TZ=", "TZ="} {
		rest, ok := strings.CutPrefix(j.Schedule, prefix)
		if !ok {
			continue
		}
		if j.Timezone, j.Schedule, _ = strings.Cut(rest, " "); s.TimeZone != "" && s.TimeZone != j.Timezone {
			r.note(line, name, "not carried over: its schedule has the time zone %s, and timeZone is %s: leave one of them out", clip(j.Timezone), clip(s.TimeZone))
			return
		}
	}
	if n := len(strings.Fields(j.Schedule)); n != 5 && !strings.HasPrefix(j.Schedule, "@every ") && (n != 1 || !strings.HasPrefix(j.Schedule, "@")) {
		r.note(line, name, "not carried over: schedule %q: want five fields, or a word like @daily", clip(j.Schedule))
		return
	}
	fields, long := withoutLongSteps(strings.Fields(j.Schedule))
	j.Schedule = strings.Join(fields, " ")
	var ok bool
	if j.Overlap, ok = map[string]job.Overlap{"": job.OverlapAllow, "Allow": job.OverlapAllow, "Forbid": job.OverlapSkip, "Replace": job.OverlapReplace}[s.Concurrency]; !ok {
		r.note(line, name, "not carried over: concurrencyPolicy %q: want Allow, Forbid or Replace", s.Concurrency)
		return
	}
	if s.StartingDeadline != nil {
		j.Deadline = time.Duration(*s.StartingDeadline) * time.Second
		j.CatchUp = job.CatchUp{Policy: job.CatchUpLatest, Within: j.Deadline}
	}
	if n := s.Job.BackoffLimit; n != nil {
		j.Retry.Attempts = int(min(*n, job.MaxAttempts-1)) + 1
	}
	if n := s.Job.ActiveDeadline; n != nil {
		j.Timeout = time.Duration(*n) * time.Second
	}
	exec, dropped := command(s.Job.Pod)
	if len(exec.Args) == 0 {
		r.note(line, name, "not carried over: %s", strings.Join(dropped, ", "))
		return
	}
	added := r.add(jobfile.Imported{Job: j, Exec: exec, Line: line, Comments: []string{fmt.Sprintf("line %d: CronJob %s", line, clip(name))}})
	if added == "" {
		return
	}
	if long != "" {
		r.note(line, added, "%s: the step is longer than its range, so Kubernetes runs it at the first value only, as here; if that was not meant, write what was", long)
	}
	r.cronJobNotes(line, added, name, s, dropped)
}

// cronJobNotes notes what was not carried over from a CronJob, and what is different.
func (r *Result) cronJobNotes(line int, name, was string, s cronJobSpec, dropped []string) {
	spec := s.Job
	if name != was {
		r.note(line, name, "its name was %s", was)
	}
	if s.StartingDeadline != nil && *s.StartingDeadline == 0 {
		r.note(line, name, "startingDeadlineSeconds 0 leaves Kubernetes no time to start it; here it has no deadline")
	}
	if s.Suspend || spec.Suspend {
		r.note(line, name, "it is suspended, which a job file cannot express: run cronce job pause %s after cronce job apply", name)
	}
	if strings.HasPrefix(s.Schedule, "@every") {
		r.note(line, name, "%s counts from 1970, not from when the CronJob was created", s.Schedule)
	}
	if spec.ActiveDeadline != nil && (spec.BackoffLimit == nil || *spec.BackoffLimit > 0) {
		r.note(line, name, "activeDeadlineSeconds bounds each attempt, not all of them together")
	}
	if n := spec.BackoffLimit; n != nil && *n >= job.MaxAttempts {
		r.note(line, name, "backoffLimit %d: a slot has at most %d attempts", *n, job.MaxAttempts)
	}
	more := func(n *int64) bool { return n != nil && *n > 1 }
	if more(spec.Completions) || more(spec.Parallelism) {
		r.note(line, name, "completions and parallelism: each slot is one run; shards: N splits a slot into N shards")
	}
	if spec.HasPolicies {
		r.note(line, name, "its failure policies: exit status 65 fails for good, 0 succeeds, all others are retried")
	}
	if len(dropped) > 0 {
		r.note(line, name, "not carried over: %s", strings.Join(dropped, ", "))
	}
}

// command returns what the pod's container starts, and what is not carried over from the pod. If it
// is not known what the container starts, e has no Args, and dropped says why.
func command(pod map[string]any) (e spec.Exec, dropped []string) {
	containers, _ := pod["containers"].([]any)
	if len(containers) != 1 {
		return e, []string{fmt.Sprintf("%d containers; an action is one command", len(containers))}
	}
	c, _ := containers[0].(map[string]any)
	program, right := texts(c["command"])
	args, argsRight := texts(c["args"])
	switch {
	case !right || !argsRight:
		return e, []string{"its command is not a list of strings"}
	case len(program) == 0:
		return e, []string{fmt.Sprintf("it has no command, and the command of the image %v is not known: set command in the manifest", c["image"])}
	}
	e.Args = append(program, args...)
	e.Env, dropped = environment(c["env"])
	if dir, _ := c["workingDir"].(string); strings.HasPrefix(dir, "/") {
		e.Dir = dir
		delete(c, "workingDir")
	}
	if slices.ContainsFunc(e.Args, func(a string) bool { return strings.Contains(a, "$(") }) {
		dropped = append(dropped, "the values of $(NAME) in the command")
	}
	accounts(&e, pod, c)
	for _, name := range sortedKeys(c) {
		if !slices.Contains([]string{"name", "command", "args", "env", "imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy"}, name) {
			dropped = append(dropped, describe(name, c[name]))
		}
	}
	for _, name := range sortedKeys(pod) {
		if !slices.Contains([]string{"containers", "restartPolicy", "dnsPolicy", "schedulerName", "terminationGracePeriodSeconds"}, name) {
			dropped = append(dropped, describe(name, pod[name]))
		}
	}
	return e, dropped
}

// accounts carries over the user and the group of the container, or of its pod if the container
// has none.
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

// environment returns the variables whose values are in the manifest, and the others in dropped.
func environment(value any) (variables []spec.Variable, dropped []string) {
	all, _ := value.([]any)
	for _, v := range all {
		m, _ := v.(map[string]any)
		name, _ := m["name"].(string)
		if m["valueFrom"] != nil {
			dropped = append(dropped, "the variable "+name+", whose value is not in the manifest")
			continue
		}
		text, isText := m["value"].(string)
		if !settable(name, text) || !isText && m["value"] != nil {
			dropped = append(dropped, "the variable "+name)
			continue
		}
		if strings.Contains(text, "$(") {
			dropped = append(dropped, "the values of $(NAME) in the variable "+name)
		}
		variables = append(variables, spec.Variable{Name: name, Value: text})
	}
	return variables, dropped
}

// sortedKeys returns the names of the members that have a value.
func sortedKeys(m map[string]any) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m)), func(name string) bool { return m[name] == nil })
}
