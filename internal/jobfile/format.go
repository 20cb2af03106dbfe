package jobfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

// Format writes jobs, with their defaults, as a file without actions. With spec.WithoutActions, Parse
// reads it as the same jobs. Each value is written as JSON, which is also YAML, so that no text of a
// payload is read as another type. Code can define some jobs that a file cannot express exactly:
// Format rounds an output size up to whole KiB and sorts the members of a payload.
func Format(jobs ...job.Job) ([]byte, error) {
	f := formatter{}
	f.out.WriteString("version: 1\njobs:\n")
	for _, j := range jobs {
		f.job(members(j.WithDefaults()), j.Name)
	}
	return f.out.Bytes(), f.err
}

// Imported is a job that was imported from the configuration of another scheduler.
type Imported struct {
	Job job.Job

	// Exec is its action.
	Exec spec.Exec

	// Shadow makes FormatImported write "shadow: true".
	Shadow bool

	// Line is the line of the job in the imported file, from 1.
	Line int

	// File is the imported file, if there are several.
	File string

	// Comments are written above the job, one on each line.
	Comments []string
}

// FormatImported writes jobs with their actions as a file that Parse reads. It leaves out fields
// that are not set. The lines of head are comments at the top of the file.
func FormatImported(head []string, jobs []Imported) ([]byte, error) {
	f := formatter{}
	f.comment("", head)
	f.out.WriteString("version: 1\njobs:\n")
	for i, j := range jobs {
		if i > 0 {
			f.out.WriteByte('\n')
		}
		f.comment("  ", j.Comments)
		f.job(append(members(j.Job), setting{"shadow", j.Shadow}, setting{"action", action(j.Exec)}), j.Job.Name)
	}
	return f.out.Bytes(), f.err
}

func (f *formatter) comment(indent string, lines []string) {
	for _, line := range lines {
		fmt.Fprintf(&f.out, "%s# %s\n", indent, escaped(line))
	}
}

func action(e spec.Exec) settings {
	env := codec.Map(e.Env, func(v spec.Variable) setting { return setting{v.Name, &v.Value} }) // an empty value is a value
	return settings{{"exec", e.Args}, {"env", settings(env)}, {"dir", e.Dir}, {"user", e.User}, {"group", e.Group}}
}

// isSet reports whether a value is written. A value is left out if it is zero, an empty list, or an
// object without members that are written.
func isSet(value any) bool {
	if all, ok := value.(settings); ok {
		return slices.ContainsFunc(all, func(m setting) bool { return isSet(m.value) })
	}
	v := reflect.ValueOf(value)
	return value != nil && !v.IsZero() && (v.Kind() != reflect.Slice || v.Len() > 0)
}

type formatter struct {
	out bytes.Buffer
	err error
}

func (f *formatter) job(all settings, name string) {
	lead := "  - "
	for _, m := range all {
		if !isSet(m.value) {
			continue
		}
		text, err := codec.Marshal(m.value)
		if err != nil {
			f.err = fmt.Errorf("job %s: %s: %w", name, m.name, err)
		}
		fmt.Fprintf(&f.out, "%s%s: %s\n", lead, m.name, escaped(string(text)))
		lead = "    "
	}
}

// escaped replaces characters that are not printable by escapes. In JSON such characters occur only
// in quotes.
func escaped(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r) // YAML's escape; JSON would need two escapes
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// setting is a member of an object in a file. If its value is not set, it is left out.
type setting struct {
	name  string
	value any
}

// settings is an object whose members are written in this order.
type settings []setting

// members returns the members of a job, in the order in which people write them.
func members(j job.Job) settings {
	return settings{
		{"name", j.Name}, {"after", j.After}, {"on", settings{{"stream", j.On.Stream}, {"subject", j.On.Subject}}}, {"schedule", j.Schedule}, {"timezone", planned(j, j.Timezone)},
		{"dst_gap", planned(j, j.DSTGap)}, {"dst_overlap", planned(j, j.DSTOverlap)}, {"spread", codec.Duration(j.Spread)},
		{"from", wholeSecond(j.From)}, {"until", wholeSecond(j.Until)}, {"exclude", j.Exclude},
		{"queue", j.Queue}, {"payload", payload(j.Payload)}, {"timeout", codec.Duration(j.Timeout)}, {"deadline", codec.Duration(j.Deadline)},
		{"retry", settings{
			{"attempts", j.Retry.Attempts}, {"backoff", codec.Duration(j.Retry.Backoff)}, {"max_backoff", codec.Duration(j.Retry.MaxBackoff)},
		}},
		{"catch_up", planned(j, settings{
			{"policy", j.CatchUp.Policy}, {"within", codec.Duration(j.CatchUp.Within)}, {"max", j.CatchUp.Max},
		})},
		{"output", kib(j.Output)}, {"overlap", j.Overlap}, {"concurrency", j.Concurrency}, {"shards", j.Shards}, {"on_lease_lost", j.OnLeaseLost},
		{"on_failure", target(j.OnFailure)}, {"on_missed", target(j.OnMissed)}, {"on_success", target(j.OnSuccess)}, {"on_recovered", target(j.OnRecovered)},
		{"on_late", append(settings{{"after", codec.Duration(j.LateAfter)}}, target(j.OnLate)...)}, {"heartbeat", alertURL(j.Heartbeat)},
	}
}

// MarshalJSON writes the members that have a value.
func (s settings) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for _, m := range s {
		if !isSet(m.value) {
			continue
		}
		value, err := codec.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%s", m.name, value)
	}
	return []byte("{" + b.String() + "}"), nil
}

// wholeSecond returns the first whole second at or after t. A slot is at a whole second, so a job from
// or until then has the same slots.
func wholeSecond(t time.Time) time.Time { return t.UTC().Add(time.Second - 1).Truncate(time.Second) }

// planned returns the value of a setting that only jobs with a schedule have.
func planned(j job.Job, value any) any {
	if !j.Plan().Scheduled() {
		return nil
	}
	return value
}

func alertURL(h *job.AlertHTTP) any {
	switch {
	case h == nil:
		return nil
	case h.URLEnv != "":
		return settings{{"env", h.URLEnv}}
	}
	return h.URL
}

func target(a *job.Alert) settings {
	if a == nil {
		return nil
	}
	body := settings{{"format", a.Format}, {"template", a.Template}, {"key", settings{{"env", a.KeyEnv}}}}
	if a.NATS != nil {
		return append(settings{{"nats", settings{{"subject", a.NATS.Subject}}}}, body...)
	}
	headers := codec.Map(a.HTTP.Headers, func(h job.AlertHeader) setting {
		return setting{h.Name, settings{{"prefix", h.Prefix}, {"env", h.Env}}}
	})
	return append(settings{{"http", settings{{"url", alertURL(a.HTTP)}, {"headers", settings(headers)}}}}, body...)
}

func kib(n int) any {
	if n == 0 {
		return nil
	}
	return fmt.Sprintf("%dKiB", (n+1023)>>10)
}

// payload returns the payload decoded, so that its text is escaped again: JSON has escapes that
// YAML does not have.
func payload(data json.RawMessage) any {
	if len(data) == 0 {
		return nil
	}
	var value any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if dec.Decode(&value) != nil {
		return data // the encoder returns the error
	}
	return &value // null and zero are payloads
}
