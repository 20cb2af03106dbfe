package migrate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

// Sidekiq reads a schedule of sidekiq-cron, a mapping or a list of jobs, or of sidekiq-scheduler,
// below "schedule", which may be below "scheduler". zone is the time zone of schedules that name none.
func Sidekiq(text []byte, zone string) (Result, error) {
	var r Result
	if bytes.Contains(text, []byte("<%")) {
		return r, fmt.Errorf("it is a template (<%% ... %%>): import the output of ERB")
	}
	file, err := parseYAML(text, "a schedule")
	if err != nil {
		return r, err
	}
	for _, doc := range withContent(file) {
		body := r.schedule(doc)
		if list, isList := body.(*ast.SequenceNode); isList {
			for _, item := range list.Values {
				r.sidekiq(lineOf(item), "", item, zone)
			}
			continue
		}
		if !isMapping(body) {
			r.note(lineOf(body), "", "not carried over: %s is neither a mapping nor a list of jobs", shown(body))
		}
		for _, p := range pairs(body) {
			r.sidekiq(lineOf(p.Key), keyOf(p), p.Value, zone)
		}
	}
	return r, nil
}

// schedule returns the node below "schedule", or body if there is no such key.
func (r *Result) schedule(body ast.Node) ast.Node {
	var found *ast.MappingValueNode
	var others []string
	var enabled *ast.MappingValueNode
	for _, p := range pairs(body) {
		if keyOf(p) == "enabled" && len(pairs(p.Value)) == 0 {
			enabled = p
		} else if (keyOf(p) == "schedule" || keyOf(p) == "scheduler" && member(p.Value, "schedule") != nil) && len(pairs(p.Value)) > 0 && found == nil {
			found = p
		} else {
			others = append(others, keyOf(p))
		}
	}
	if found == nil {
		return body
	}
	if enabled != nil && enabled.Value.String() == "false" {
		r.note(lineOf(enabled.Key), "", "its scheduler is disabled, which a job file cannot express: run cronce job pause NAME for each job after cronce job apply")
	}
	if len(others) > 0 {
		r.note(lineOf(body), "", "not carried over, since it is not below schedule: %s", clip(strings.Join(others, ", ")))
	}
	if keyOf(found) == "scheduler" { // a file of Sidekiq itself
		return r.schedule(found.Value)
	}
	return found.Value
}

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
	var dropped []string
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
		dropped = append(dropped, fmt.Sprintf("it is disabled, which a job file cannot express: run cronce job pause %s after cronce job apply", j.Name))
	}
	for _, key := range sortedKeys(m) {
		if !slices.Contains([]string{"cron", "every", "class", "klass", "args", "queue", "description", "status", "enabled", "source"}, key) {
			text := fmt.Sprintf("not carried over: %s: %v", key, clip(fmt.Sprint(m[key])))
			if advice := sidekiqAdvice[key]; advice != "" {
				text += ": " + advice
			}
			dropped = append(dropped, text)
		}
	}
	comments := []string{fmt.Sprintf("line %d: %s", line, clip(name))}
	if text, ok := m["description"].(string); ok {
		comments = append(comments, clip(strings.Join(strings.Fields(text), " ")))
	}
	added := r.add(jobfile.Imported{Job: j, Exec: spec.Exec{Args: []string{"bundle", "exec", "ruby", "enqueue.rb", class}}, Line: line, Comments: comments})
	if added == "" {
		return
	}
	if strings.HasPrefix(j.Schedule, "@every") {
		dropped = append(dropped, fromEpoch(j.Schedule, "the start of Sidekiq"))
	}
	if added != name {
		dropped = append(dropped, "its name was "+clip(name))
	}
	for _, l := range dropped {
		r.note(line, added, "%s", l)
	}
}

// sidekiqAdvice says what replaces a key that is not carried over.
var sidekiqAdvice = map[string]string{
	"active_job":        "let enqueue.rb call perform_later of its class",
	"date_as_argument":  "let enqueue.rb append the time in CRONCE_SLOT to the arguments",
	"queue_name_prefix": "write the whole name of the queue",
	"retry":             "let enqueue.rb put it into the item that it pushes",
	"symbolize_args":    "let enqueue.rb symbolize them",
}

// rubyArgs returns the payload for enqueue.rb.
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

// fugitDays matches weekdays that fugit reads in its own way: n/m is n alone, a star in a list counts for
// nothing, and */1 selects all days even if a day of the month is given.
var fugitDays = regexp.MustCompile(`(^|,)\w+/|,\*|\*.*,|^\*/1$`)

// The days that fugit counts from the end of a month: "last", -1 and -2 among the days, and mon#-1 or mon#L
// among the weekdays.
var (
	fugitLast        = regexp.MustCompile(`(?i)\blast\b|(?:^|\B)-[0-9]+`)
	fugitLastWeekday = regexp.MustCompile(`(?i)(\w+)#(?:-1|l|last)(,|$)`)
)

// fromEnd returns "L" for "last" and "-1", and "L-1" for "-2".
func fromEnd(day string) string {
	if n, err := strconv.Atoi(strings.TrimPrefix(day, "-")); err == nil && n > 1 {
		return fmt.Sprintf("L-%d", n-1)
	}
	return "L"
}

// rubySchedule sets the schedule of cron: or every:. If the value is a list, its elements after the
// first are options of rufus-scheduler, like first_in. rubySchedule adds them to m, so that they are
// reported as not carried over.
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
	if n := len(fields); (n == 6 || n == 7) && isZone(fields[n-1]) && strings.ContainsAny(fields[n-1], "/ABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		j.Timezone, fields = fields[n-1], fields[:n-1]
	}
	if n := len(fields); n == 5 || n == 6 {
		fields[n-3] = fugitLast.ReplaceAllStringFunc(fields[n-3], fromEnd)
		fields[n-1] = fugitLastWeekday.ReplaceAllString(fields[n-1], "${1}L$2")
	}
	switch n := len(fields); {
	case n == 1 && strings.HasPrefix(text, "@"):
	case n != 5 && n != 6 || strings.EqualFold(fields[0], "every"):
		return fmt.Sprintf("cron %q is not five or six fields of cron; write it so, or ask fugit: Fugit.parse(...).to_cron_s", clip(text))
	case strings.ContainsAny(text, "%&~") || strings.Contains(fields[n-1], "#-"):
		return fmt.Sprintf("cron %q has a form that only fugit knows", clip(text))
	case strings.Contains(text, "?"):
		return fmt.Sprintf("cron %q: fugit does not know the question mark: write *", clip(text))
	case fugitDays.MatchString(fields[n-1]):
		return fmt.Sprintf("cron %q: the weekdays %s are other days to fugit: write them out", clip(text), fields[n-1])
	}
	j.Schedule = strings.Join(fields, " ")
	return ""
}
