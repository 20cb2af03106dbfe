package migrate

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

// GitHub reads the schedules of a workflow: on.schedule, a list of {cron: ...}. file is its path,
// which names a workflow without a name.
func GitHub(text []byte, file string) (Result, error) {
	var r Result
	parsed, err := parseYAML(text, "a workflow")
	if err != nil {
		return r, err
	}
	some := withContent(parsed)
	for _, doc := range some {
		if before := len(r.Jobs) + len(r.Notes); len(some) > 1 {
			if r.workflow(doc, file); len(r.Jobs)+len(r.Notes) == before {
				r.note(lineOf(doc), "", "not carried over: this document has no schedule below on")
			}
			continue
		}
		r.workflow(doc, file)
	}
	return r, nil
}

func (r *Result) workflow(body ast.Node, file string) {
	name := strings.TrimSuffix(path.Base(file), path.Ext(file))
	var entries []ast.Node
	var others, steps []string
	line := 1
	for _, p := range pairs(body) {
		switch key := keyOf(p); key {
		case "name":
			var text string
			if yaml.NodeToValue(p.Value, &text) == nil && text != "" {
				name = text
			}
		case "on", "true": // YAML 1.1 reads on as true
			line = lineOf(p.Key)
			for _, trigger := range pairs(p.Value) {
				list, isList := trigger.Value.(*ast.SequenceNode)
				switch {
				case keyOf(trigger) == "schedule" && isList:
					entries = list.Values
				case keyOf(trigger) == "schedule":
					r.note(lineOf(trigger.Key), "", "not carried over: schedule is not a list of {cron: ...}")
				default:
					others = append(others, keyOf(trigger))
				}
			}
		case "jobs":
			steps = codec.Map(pairs(p.Value), keyOf)
		case "run-name":
		default:
			others = append(others, key)
		}
	}
	if len(entries) == 0 {
		return
	}
	for _, e := range entries {
		r.scheduled(e, name, steps)
	}
	if len(others) > 0 {
		r.note(line, "", "not carried over from the workflow %s: %s", clip(name), strings.Join(others, ", "))
	}
}

// scheduled reads an element of on.schedule.
func (r *Result) scheduled(e ast.Node, name string, steps []string) {
	line := lineOf(e)
	var m map[string]any
	if err := yaml.NodeToValue(e, &m); err != nil || len(pairs(e)) == 0 {
		r.note(line, "", "not carried over: it is not {cron: ...}")
		return
	}
	cron, _ := m["cron"].(string)
	if fields := strings.Fields(cron); len(fields) != 5 {
		r.note(line, "", "not carried over: cron %q: want five fields", clip(cron))
		return
	}
	j := job.Job{
		Name: UnitName(name), Schedule: strings.Join(strings.Fields(cron), " "), Timezone: "UTC",
		Overlap: job.OverlapAllow, Retry: job.Retry{Attempts: 1}, CatchUp: job.CatchUp{Policy: job.CatchUpNone},
	}
	if zone, ok := m["timezone"].(string); ok {
		if _, err := time.LoadLocation(zone); err != nil || zone == "" {
			r.note(line, "", "not carried over: unknown time zone %q", clip(zone))
			return
		}
		j.Timezone = zone
	}
	what := "the workflow " + clip(name)
	if len(steps) > 0 {
		what += ", jobs " + clip(strings.Join(steps, ", "))
	}
	script := "echo " + shellWord("write here what it did: "+printableText(what)) + " >&2; exit 65"
	added := r.add(jobfile.Imported{
		Job: j, Exec: spec.Exec{Args: []string{"/bin/sh", "-c", script}}, Line: line, Comments: []string{fmt.Sprintf("line %d: %s, cron: %s", line, clip(name), clip(cron))},
	})
	if added == "" {
		return
	}
	r.note(line, added, "not carried over: what it does (%s): its action is a placeholder that fails until you fill it in", what)
	if isOften(j) {
		r.note(line, added, "GitHub starts a workflow every five minutes at most; here it runs as often as %s says", j.Schedule)
	}
	for _, key := range sortedKeys(m) {
		if !slices.Contains([]string{"cron", "timezone"}, key) {
			r.note(line, added, "not carried over: %s: %s", key, clip(fmt.Sprint(m[key])))
		}
	}
}

// isOften reports whether two slots of an hour are less than five minutes apart.
func isOften(j job.Job) bool {
	s, err := job.ParseSchedule(j.Name, j.Plan())
	if err != nil {
		return false
	}
	for at, n := s.Next(sunday), 0; n < 60 && !at.IsZero(); n++ {
		next := s.Next(at)
		if !next.IsZero() && next.Sub(at) < 5*time.Minute {
			return true
		}
		at = next
	}
	return false
}

// printableText replaces control characters by spaces.
func printableText(text string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, text)
}
