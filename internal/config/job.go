package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cronce-io/cronce/job"
)

// jobDecoder builds one job. job is valid at every moment: it starts as
// placeholder and takes a field only when package job accepts it with all that
// came before, so that each complaint belongs to one node.
type jobDecoder struct {
	*decoder
	job    job.Job
	named  bool
	action Action
}

var placeholder = job.Job{Name: "placeholder", Schedule: "* * * * *"}

// entry reads the job at ordinal (from 1), and says where its name stands. The
// name is empty when it is missing or wrong.
func (d *decoder) entry(v value, ordinal int) (Entry, position) {
	j := &jobDecoder{decoder: &decoder{d.source, fmt.Sprintf("job %d: ", ordinal)}, job: placeholder}
	v.label = ""
	nameAt := v.at
	if m := v.member("name"); m != nil {
		nameAt = m.value.at
		j.name(value{m.value, "name"})
	} else if v.kind == mapping {
		j.fail(v.at, "no name: want \"name:\" with 1 to 64 characters of A-Z a-z 0-9 _ -")
	}
	if j.object(v, j.fields()) {
		j.required(v)
	}
	if !j.named {
		j.job.Name = ""
	}
	return Entry{Job: j.job, Action: j.action, Line: v.at.line}, nameAt
}

func (j *jobDecoder) name(v value) {
	if s, ok := j.text(v, "report"); ok && j.try(v, func(t *job.Job) { t.Name = s }) {
		j.prefix, j.named = fmt.Sprintf("job %q: ", s), true
	}
}

// required reports what every job must have. A job that something else starts
// needs no schedule; that there is no such thing yet has been said already.
func (j *jobDecoder) required(v value) {
	if v.member("schedule") == nil && v.member("on") == nil && v.member("after") == nil {
		j.fail(v.at, "no schedule: want one like \"0 7 * * MON-FRI\" or \"@every 90s\"")
	}
	if v.member("action") == nil {
		j.fail(v.at, "no action: want one like \"action: {exec: [/bin/echo, hello]}\"")
	}
}

// fields are in the order in which they are tried: whether anything is left of a
// schedule depends on its bounds and exclusions, so they come after it.
func (j *jobDecoder) fields() []field {
	return []field{
		{"name", func(value) {}}, // see entry
		{"schedule", j.setText("0 7 * * MON-FRI", func(t *job.Job, s string) { t.Schedule = s })},
		{"timezone", j.setText("Europe/Berlin", func(t *job.Job, s string) { t.Timezone = s })},
		{"dst_gap", j.setText("after", func(t *job.Job, s string) { t.DSTGap = job.GapPolicy(s) })},
		{"dst_overlap", j.setText("first", func(t *job.Job, s string) { t.DSTOverlap = job.RepeatPolicy(s) })},
		{"spread", j.setDuration(func(t *job.Job, d time.Duration) { t.Spread = d })},
		{"from", j.setInstant(func(t *job.Job, at time.Time) { t.From = at })},
		{"until", j.setInstant(func(t *job.Job, at time.Time) { t.Until = at })},
		{"exclude", j.exclude},
		{"queue", j.setText("default", func(t *job.Job, s string) { t.Queue = s })},
		{"payload", j.payload},
		{"timeout", j.setDuration(func(t *job.Job, d time.Duration) { t.Timeout = d })},
		{"deadline", j.setDuration(func(t *job.Job, d time.Duration) { t.Deadline = d })},
		{"retry", j.retry},
		{"catch_up", j.catchUp},
		{"action", j.decodeAction},
		{"overlap", j.overlap},
		{"on_lease_lost", j.onLeaseLost},
		{"shards", j.countLater},
		{"concurrency", j.countLater},
		{"on", j.on},
		{"after", j.after},
		{"on_failure", j.alert},
		{"on_missed", j.alert},
	}
}

// try sets a field if package job has nothing against it.
func (j *jobDecoder) try(v value, set func(*job.Job)) bool {
	candidate := j.job
	set(&candidate)
	err := candidate.Validate()
	if err == nil {
		j.job = candidate
		return true
	}
	for _, message := range complaints(err) {
		j.fail(v.at, "%s", message)
	}
	return false
}

// complaints takes apart what Job.Validate joined, and drops what an error with
// a place says already: that it is invalid, and in which job.
func complaints(err error) []string {
	if inner := errors.Unwrap(err); inner != nil && strings.HasPrefix(err.Error(), "job \"") {
		err = inner
	}
	lines := strings.Split(err.Error(), "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], job.ErrInvalid.Error()+" ")
	}
	return lines
}

func (j *jobDecoder) setText(example string, set func(*job.Job, string)) func(value) {
	return func(v value) {
		if s, ok := j.text(v, example); ok {
			j.try(v, func(t *job.Job) { set(t, s) })
		}
	}
}

func (j *jobDecoder) setDuration(set func(*job.Job, time.Duration)) func(value) {
	return func(v value) {
		if d, ok := j.duration(v); ok {
			j.try(v, func(t *job.Job) { set(t, d) })
		}
	}
}

func (j *jobDecoder) setInstant(set func(*job.Job, time.Time)) func(value) {
	return func(v value) {
		if at, ok := j.instant(v); ok {
			j.try(v, func(t *job.Job) { set(t, at) })
		}
	}
}

func (j *jobDecoder) setCount(set func(*job.Job, int)) func(value) {
	return func(v value) {
		if n, ok := j.count(v); ok {
			j.try(v, func(t *job.Job) { set(t, n) })
		}
	}
}

// exclude tries each exclusion by itself, to know which one is wrong, and then
// all together: they may leave nothing.
func (j *jobDecoder) exclude(v value) {
	var all []string
	bounds, right := j.job, true
	j.list(v, "a list like [\"2026-12-25\", \"* * * * SUN\"]", func(item value) {
		s, ok := j.text(item, "2026-12-25")
		right = right && ok
		if !ok {
			return
		}
		right = j.try(item, func(t *job.Job) { t.Exclude = []string{s} }) && right
		all = append(all, s)
	})
	j.job = bounds
	if right && len(all) > 1 {
		j.try(v, func(t *job.Job) { t.Exclude = all })
	} else if right && len(all) == 1 {
		j.job.Exclude = all
	}
}

func (j *jobDecoder) payload(v value) {
	if data, ok := j.decoder.payload(v); ok {
		j.try(v, func(t *job.Job) { t.Payload = data })
	}
}

func (j *jobDecoder) retry(v value) {
	j.object(v, []field{
		{"attempts", j.setCount(func(t *job.Job, n int) { t.Retry.Attempts = n })},
		{"backoff", j.setDuration(func(t *job.Job, d time.Duration) { t.Retry.Backoff = d })},
		{"max_backoff", j.setDuration(func(t *job.Job, d time.Duration) { t.Retry.MaxBackoff = d })},
	})
}

func (j *jobDecoder) catchUp(v value) {
	j.object(v, []field{
		{"policy", j.setText("latest", func(t *job.Job, s string) { t.CatchUp.Policy = job.CatchUpPolicy(s) })},
		{"within", j.setDuration(func(t *job.Job, d time.Duration) { t.CatchUp.Within = d })},
		{"max", j.setCount(func(t *job.Job, n int) { t.CatchUp.Max = n })},
	})
}
