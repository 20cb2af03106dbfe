package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// jobDecoder builds one job. Package job validates the whole job; settle attributes its
// errors to positions in the file.
type jobDecoder struct {
	*decoder
	name   string // empty if it is missing or invalid
	steps  []step
	action Action
	shadow bool
}

// step sets one field of the job.
type step struct {
	at  Position
	set func(*job.Job)
}

// entry reads the job at ordinal (from 1), and returns the position of its name.
func (d *decoder) entry(v value, ordinal int) (Entry, Position) {
	j := &jobDecoder{decoder: &decoder{d.Source, fmt.Sprintf("job %d: ", ordinal), d.actionless}}
	v.label = ""
	nameAt := v.At
	if m := v.member("name"); m != nil {
		nameAt = m.Value.At
		j.decodeName(value{m.Value, "name"})
	} else if v.Kind == Mapping {
		j.fail(v.At, "no name: want \"name:\" with 1 to 64 characters of A-Z a-z 0-9 _ -")
	}
	if j.object(v, j.fields()) {
		j.required(v)
	}
	return Entry{Job: j.settle(v), Action: j.action, Shadow: j.shadow, Line: v.At.Line}, nameAt
}

// decodeName reads the name. It is called first, because all other errors of the job begin with the
// name.
func (j *jobDecoder) decodeName(v value) {
	s, ok := j.text(v, "report")
	if !ok {
		return
	}
	if err := codec.ValidateName("job", s); err != nil {
		j.fail(v.At, "%s", complaints(err)[0])
		return
	}
	j.name, j.prefix = s, fmt.Sprintf("job %q: ", s)
}

// settle applies all steps at once. If package job rejects the result, settle applies one
// step after the other: an error belongs to the step that makes a valid job invalid. That
// step is then left out, to find further errors.
func (j *jobDecoder) settle(v value) job.Job {
	// Missing fields are reported already. With these values, they are not reported again for each
	// step.
	valid := job.Job{Name: "placeholder", Schedule: "* * * * *"}
	if v.member("schedule") == nil {
		switch {
		case v.member("after") != nil:
			valid.Schedule, valid.After = "", []string{"another"}
		case v.member("on") != nil:
			valid.Schedule, valid.On = "", job.On{Stream: "ANOTHER", Subject: "another"}
		}
	}
	if j.name != "" {
		valid.Name = j.name
	}
	whole := valid
	for _, s := range j.steps {
		s.set(&whole)
	}
	if whole.Validate() != nil {
		for _, s := range j.steps {
			if j.more {
				break // further errors are not shown
			}
			j.take(s, &valid)
		}
	}
	whole.Name = j.name
	return whole
}

func (j *jobDecoder) take(s step, valid *job.Job) {
	candidate := *valid
	s.set(&candidate)
	err := candidate.Validate()
	if err == nil {
		*valid = candidate
		return
	}
	for _, message := range complaints(err) {
		j.fail(s.at, "%s", message)
	}
}

func (j *jobDecoder) set(v value, set func(*job.Job)) {
	j.steps = append(j.steps, step{v.At, set})
}

// complaints splits an error of Job.Validate into its messages. It removes the job's name and the
// word "invalid", because an error with a position does not need them.
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

const noSchedule = `no schedule: want one like "0 7 * * MON-FRI" or "@every 90s"; after or on, which start the job instead; or "schedule: none", which starts it only when triggered`

func (j *jobDecoder) schedule(v value) {
	if v.Kind == Null {
		j.fail(v.At, noSchedule)
		return
	}
	j.setText("0 7 * * MON-FRI", func(t *job.Job, s string) { t.Schedule = s })(v)
}

// required reports what every job must have.
func (j *jobDecoder) required(v value) {
	if v.member("schedule") == nil && v.member("on") == nil && v.member("after") == nil {
		j.fail(v.At, noSchedule)
	}
	if v.member("action") == nil && !j.actionless {
		j.fail(v.At, "no action: want one like \"action: {exec: [/bin/echo, hello]}\"")
	}
}

// fields returns the fields in the order in which they are decoded. The bounds and exclusions of a
// schedule come after it. So if they leave no slot, the error is attributed to them.
func (j *jobDecoder) fields() []field {
	return []field{
		{"name", func(value) {}}, // see decodeName
		{"after", j.after},
		{"on", j.on},
		{"schedule", j.schedule},
		{"timezone", j.setText("Europe/Berlin", func(t *job.Job, s string) { t.Timezone = s })},
		{"dst_gap", j.setText("after", func(t *job.Job, s string) { t.DSTGap = job.GapPolicy(s) })},
		{"dst_overlap", j.setText("first", func(t *job.Job, s string) { t.DSTOverlap = job.RepeatPolicy(s) })},
		{"spread", setField(j, j.duration, func(t *job.Job, d time.Duration) { t.Spread = d })},
		{"from", setField(j, j.instant, func(t *job.Job, at time.Time) { t.From = at })},
		{"until", setField(j, j.instant, func(t *job.Job, at time.Time) { t.Until = at })},
		{"exclude", j.exclude},
		{"queue", j.setText("default", func(t *job.Job, s string) { t.Queue = s })},
		{"payload", setField(j, j.payload, func(t *job.Job, data json.RawMessage) { t.Payload = data })},
		{"timeout", setField(j, j.duration, func(t *job.Job, d time.Duration) { t.Timeout = d })},
		{"deadline", setField(j, j.duration, func(t *job.Job, d time.Duration) { t.Deadline = d })},
		{"retry", j.retry},
		{"catch_up", j.catchUp},
		{"output", setField(j, j.size, func(t *job.Job, n int) { t.Output = n })},
		{"action", j.decodeAction},
		{"shadow", func(v value) { j.shadow = j.flag(v) }},
		{"overlap", j.setWord(codec.Strings(job.Overlaps()...), func(t *job.Job, s string) { t.Overlap = job.Overlap(s) })},
		{"concurrency", setField(j, j.count, func(t *job.Job, n int) { t.Concurrency = n })},
		{"on_lease_lost", j.setWord(codec.Strings(job.LeaseLostCancel, job.LeaseLostFinish), func(t *job.Job, s string) { t.OnLeaseLost = job.LeaseLost(s) })},
		{"shards", setField(j, j.count, func(t *job.Job, n int) { t.Shards = n })},
		{"on_failure", j.alert(func(t *job.Job, a *job.Alert) { t.OnFailure = a }, job.Failed, job.Expired)},
		{"on_missed", j.alert(func(t *job.Job, a *job.Alert) { t.OnMissed = a }, job.Missed)},
		{"on_success", j.alert(func(t *job.Job, a *job.Alert) { t.OnSuccess = a }, job.Succeeded)},
		{"on_recovered", j.alert(func(t *job.Job, a *job.Alert) { t.OnRecovered = a }, job.AlertRecovered)},
		{"on_late", j.late},
		{"heartbeat", j.heartbeat},
	}
}

// setField returns a decoder that reads a value and sets a field of the job to it.
func setField[T any](j *jobDecoder, read func(value) (T, bool), set func(*job.Job, T)) func(value) {
	return func(v value) {
		if x, ok := read(v); ok {
			j.set(v, func(t *job.Job) { set(t, x) })
		}
	}
}

func (j *jobDecoder) setText(example string, set func(*job.Job, string)) func(value) {
	return setField(j, func(v value) (string, bool) { return j.text(v, example) }, set)
}

func (j *jobDecoder) setWord(words []string, set func(*job.Job, string)) func(value) {
	return setField(j, func(v value) (string, bool) { return j.oneOf(v, words...) }, set)
}

// exclude sets the exclusions one by one. So settle can find out which one is invalid, or leaves no
// slot.
func (j *jobDecoder) exclude(v value) {
	j.list(v, "a list like [\"2026-12-25\", \"* * * * SUN\"]", func(item value) {
		if s, ok := j.text(item, "2026-12-25"); ok {
			j.set(item, func(t *job.Job) { t.Exclude = append(t.Exclude, s) })
		}
	})
}

// on reads which messages start the job.
func (j *jobDecoder) on(v value) {
	var on job.On
	fields := []field{
		{"stream", func(v value) { on.Stream, _ = j.text(v, "ORDERS") }},
		{"subject", func(v value) { on.Subject, _ = j.text(v, "orders.paid") }},
	}
	if j.sound(func() { j.object(v, fields, "stream", "subject") }) {
		j.set(v, func(t *job.Job) { t.On = on })
	}
}

func (j *jobDecoder) after(v value) {
	if v.Kind == List && len(v.Items) == 0 {
		j.fail(v.At, "%s: it is empty: want job names, like [extract]", v.label)
		return
	}
	names, right := []string{}, true
	j.list(v, "a list of job names, like [extract]", func(item value) {
		s, ok := j.text(item, "extract")
		names, right = append(names, s), right && ok
	})
	if right && v.Kind == List {
		j.set(v, func(t *job.Job) { t.After = names })
	}
}

func (j *jobDecoder) retry(v value) {
	j.object(v, []field{
		{"attempts", setField(j, j.count, func(t *job.Job, n int) { t.Retry.Attempts = n })},
		{"backoff", setField(j, j.duration, func(t *job.Job, d time.Duration) { t.Retry.Backoff = d })},
		{"max_backoff", setField(j, j.duration, func(t *job.Job, d time.Duration) { t.Retry.MaxBackoff = d })},
	})
}

func (j *jobDecoder) catchUp(v value) {
	j.object(v, []field{
		{"policy", j.setText("latest", func(t *job.Job, s string) { t.CatchUp.Policy = job.CatchUpPolicy(s) })},
		{"within", setField(j, j.duration, func(t *job.Job, d time.Duration) { t.CatchUp.Within = d })},
		{"max", setField(j, j.count, func(t *job.Job, n int) { t.CatchUp.Max = n })},
	})
}
