package migrate

import (
	"bytes"
	"cmp"
	"encoding/json"
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

// SidekiqHead says what the jobs of a schedule of Sidekiq do as they did, and what is different.
var SidekiqHead = []string{
	"Imported from a schedule of Sidekiq. Each job puts its job into Sidekiq's queue with",
	"enqueue.rb, which the page on migration shows: put it beside this file. As before, a slot that",
	`was missed does not run later. On days when clocks change look at "cronce next -f": fugit,`,
	"which computed the times, has rules of its own there.",
}

// parseYAML reads a text whose nesting is bounded.
func parseYAML(text []byte, what string) (*ast.File, error) {
	if deep(text) {
		return nil, fmt.Errorf("it is nested too deeply to be %s", what)
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, errors.New(yaml.FormatError(err, false, true))
	}
	return file, nil
}

// pairs returns the members of a mapping. A colon before a key, of a symbol in Ruby, is left out.
func pairs(n ast.Node) (all []*ast.MappingValueNode) {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}
	}
	return nil
}

func keyOf(v *ast.MappingValueNode) string {
	t := v.Key.GetToken()
	if t == nil {
		return ""
	}
	return strings.TrimPrefix(t.Value, ":")
}

// Sidekiq reads a schedule of sidekiq-cron, a mapping or a list of jobs, or of sidekiq-scheduler,
// below "schedule", which may be below "scheduler". zone is where schedules are that name no time zone.
func Sidekiq(text []byte, zone string) (Result, error) {
	var r Result
	if bytes.Contains(text, []byte("<%")) {
		return r, fmt.Errorf("it is a template (<%% ... %%>): take what ERB makes of it")
	}
	file, err := parseYAML(text, "a schedule")
	if err != nil {
		return r, err
	}
	for _, doc := range file.Docs {
		body := r.schedule(doc.Body)
		if list, isList := body.(*ast.SequenceNode); isList {
			for _, item := range list.Values {
				r.sidekiq(lineOf(item), "", item, zone)
			}
			continue
		}
		for _, p := range pairs(body) {
			r.sidekiq(lineOf(p.Key), keyOf(p), p.Value, zone)
		}
	}
	return r, nil
}

// schedule returns what is below "schedule", and else all.
func (r *Result) schedule(body ast.Node) ast.Node {
	var found *ast.MappingValueNode
	var others []string
	for _, p := range pairs(body) {
		if (keyOf(p) == "schedule" || keyOf(p) == "scheduler" && hasKey(p.Value, "schedule")) && len(pairs(p.Value)) > 0 && found == nil {
			found = p
		} else {
			others = append(others, keyOf(p))
		}
	}
	if found == nil {
		return body
	}
	if len(others) > 0 {
		r.note(lineOf(body), "", "not carried over, since it is not below schedule: %s", clip(strings.Join(others, ", ")))
	}
	if keyOf(found) == "scheduler" { // a file of Sidekiq itself
		return r.schedule(found.Value)
	}
	return found.Value
}

func hasKey(n ast.Node, key string) bool {
	return slices.ContainsFunc(pairs(n), func(p *ast.MappingValueNode) bool { return keyOf(p) == key })
}

// sidekiq reads one job.
func (r *Result) sidekiq(line int, name string, n ast.Node, zone string) {
	var raw map[string]any
	if err := yaml.NodeToValue(n, &raw); err != nil || len(pairs(n)) == 0 {
		r.note(line, name, "not carried over: it is not a mapping with cron and class")
		return
	}
	m := map[string]any{}
	for k, v := range raw {
		m[strings.TrimPrefix(k, ":")] = v
	}
	if own, ok := m["name"].(string); ok && name == "" {
		name = own
	}
	delete(m, "name")
	class, _ := m["class"].(string)
	if class == "" {
		class, _ = m["klass"].(string)
	}
	name = cmp.Or(name, class)
	if class == "" {
		r.note(line, name, "not carried over: it has no class")
		return
	}
	j := job.Job{
		Name: UnitName(name), Timezone: zone, Overlap: job.OverlapAllow, Retry: job.Retry{Attempts: 1}, CatchUp: job.CatchUp{Policy: job.CatchUpNone},
	}
	var lacks []string
	if why := rubySchedule(&j, m); why != "" {
		r.note(line, name, "not carried over: %s", why)
		return
	}
	payload, err := rubyArgs(m)
	if err != nil {
		r.note(line, name, "not carried over: its args: %v", err)
		return
	}
	j.Payload = payload
	status, _ := m["status"].(string)
	if enabled, given := m["enabled"].(bool); status == "disabled" || given && !enabled {
		lacks = append(lacks, fmt.Sprintf("it is disabled, and a file cannot say so: after cronce job apply, cronce job pause %s", j.Name))
	}
	for _, key := range sortedKeys(m) {
		if !slices.Contains([]string{"cron", "every", "class", "klass", "args", "queue", "description", "status", "enabled", "source"}, key) {
			lacks = append(lacks, "not carried over: "+key+fmt.Sprintf(": %v", clip(fmt.Sprint(m[key]))))
		}
	}
	comments := []string{fmt.Sprintf("line %d: %s", line, clip(name))}
	if text, ok := m["description"].(string); ok {
		comments = append(comments, clip(strings.Join(strings.Fields(text), " ")))
	}
	added := r.addJob(line, jobfile.Imported{Job: j, Exec: spec.Exec{Args: []string{"bundle", "exec", "ruby", "enqueue.rb", class}}, Line: line, Comments: comments})
	if added == "" {
		return
	}
	if strings.HasPrefix(j.Schedule, "@every") {
		lacks = append(lacks, j.Schedule+" counts from 1970, not from the start of Sidekiq")
	}
	if added != name {
		lacks = append(lacks, "its name was "+clip(name))
	}
	for _, l := range lacks {
		r.note(line, added, "%s", l)
	}
}

// rubyArgs returns what enqueue.rb gets.
func rubyArgs(m map[string]any) (json.RawMessage, error) {
	call := struct {
		Args  any    `json:"args,omitempty"`
		Queue string `json:"queue,omitempty"`
	}{Args: m["args"]}
	if _, isList := call.Args.([]any); !isList && call.Args != nil {
		call.Args = []any{call.Args} // one argument
	}
	call.Queue, _ = m["queue"].(string)
	data, err := json.Marshal(call)
	if err != nil || string(data) == "{}" {
		return nil, err
	}
	return data, nil
}

// rubySchedule sets the schedule of cron: or every:. What a list has behind the first value are
// options of rufus-scheduler, like first_in: they become members of m, which are not carried over.
func rubySchedule(j *job.Job, m map[string]any) (why string) {
	for _, key := range []string{"cron", "every"} {
		if list, isList := m[key].([]any); isList && len(list) > 0 {
			m[key] = list[0]
			for _, options := range list[1:] {
				more, isMap := options.(map[string]any)
				if !isMap {
					return fmt.Sprintf("%s: %v is not understood", key, clip(fmt.Sprint(list)))
				}
				for name, value := range more {
					m[strings.TrimPrefix(name, ":")] = value
				}
			}
		}
	}
	text, isText := m["cron"].(string)
	if !isText {
		interval, isText := m["every"].(string)
		d, err := time.ParseDuration(interval)
		switch {
		case m["every"] == nil:
			return "it has no cron"
		case !isText || err != nil:
			return fmt.Sprintf("every: %v: only an interval like 30s, 5m or 2h is understood", clip(fmt.Sprint(m["every"])))
		}
		return every(j, d)
	}
	fields := strings.Fields(text)
	if n := len(fields); n == 6 || n == 7 {
		if _, err := time.LoadLocation(fields[n-1]); err == nil && strings.ContainsAny(fields[n-1], "/ABCDEFGHIJKLMNOPQRSTUVWXYZ") && !strings.ContainsAny(fields[n-1][:1], "0123456789*") {
			if _, isDay := weekdayOf(fields[n-1]); !isDay {
				j.Timezone, fields = fields[n-1], fields[:n-1]
			}
		}
	}
	switch n := len(fields); {
	case n == 1 && strings.HasPrefix(text, "@"):
	case n != 5 && n != 6 || strings.EqualFold(fields[0], "every"):
		return fmt.Sprintf("cron %q is not five or six fields of cron; write it so, or ask fugit: Fugit.parse(...).to_cron_s", clip(text))
	case strings.ContainsAny(text, "#%&L~"):
		return fmt.Sprintf("cron %q has a form that only fugit knows", clip(text))
	}
	j.Schedule = strings.Join(fields, " ")
	return ""
}
