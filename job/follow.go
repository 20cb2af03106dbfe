package job

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// What starts a job that has no schedule: other jobs (Job.After) or messages of a
// stream (Job.On). Its plan has no slot of its own, so that producers, verify and
// next find none; its slots come from what starts it.

// MaxAfter is how many jobs one can come after.
const MaxAfter = 32

// maxSubject is far below what makes a server hang up, which is the length of a
// whole protocol line.
const maxSubject = 1024

// validateSubject refuses what is no subject or, unless wild, has wildcards.
func validateSubject(field, s string, wild bool) error {
	bad := func(why string) error {
		return fmt.Errorf("%w %s %q: %s, like orders.paid", ErrInvalid, field, clip(s), why)
	}
	if len(s) > maxSubject || strings.ContainsAny(s, " ") || hasControl(s) {
		return bad(fmt.Sprintf("want at most %d bytes, without spaces", maxSubject))
	}
	tokens := strings.Split(s, ".")
	for i, token := range tokens {
		switch {
		case token == "":
			return bad("want words with dots between them")
		case !wild && (token == "*" || token == ">"):
			return bad("want one without wildcards")
		case token == ">" && i < len(tokens)-1:
			return bad("> stands for the rest: want it at the end")
		}
	}
	return nil
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// parts is the message of a whole slot, or those of its n parts.
func (m Message) parts(n int) []Message {
	if n == 0 {
		return []Message{m}
	}
	parts := make([]Message, n)
	for i := range parts {
		parts[i] = m
		parts[i].Slot = m.Slot.Part(i+1, n)
	}
	return parts
}

// started reports whether something else than a schedule starts the plan's job.
func (p Plan) started() bool { return len(p.After) > 0 || !p.On.IsZero() }

// Start says in a few words what starts the job: its schedule, "after extract" or
// "on ORDERS orders.paid".
func (p Plan) Start() string {
	switch {
	case len(p.After) > 0:
		return "after " + strings.Join(p.After, ", ")
	case !p.On.IsZero():
		return p.On.String()
	}
	return p.Schedule
}

// parseStarted compiles the plan of a job that something else starts: a schedule
// without slots.
func parseStarted(name string, p Plan) (*Schedule, error) {
	errs := []error{p.On.validate(), validateAfter(name, p.After)}
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("%w %s", ErrInvalid, fmt.Sprintf(format, args...)))
		}
	}
	bad(p.Schedule != "" && len(p.After) > 0, "after: the job has a schedule too: want one of them")
	bad(p.Schedule != "" && !p.On.IsZero(), "on: the job has a schedule too: want one of them")
	bad(len(p.After) > 0 && !p.On.IsZero(), "after and on at once: want one of them")
	for _, unused := range []struct {
		name string
		set  bool
	}{{"timezone", p.Timezone != "UTC"}, {"spread", p.Spread != 0}, {"from", !p.From.IsZero()}, {"until", !p.Until.IsZero()}, {"exclude", len(p.Exclude) > 0}} {
		bad(unused.set && p.Schedule == "", "%s: it is about a schedule, and this job has none (%s)", unused.name, p.Start())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Schedule{source: noSource{}, zone: time.UTC, first: firstInstant, last: lastInstant, key: "none"}, nil
}

func validateAfter(name string, after []string) error {
	if len(after) > MaxAfter {
		return fmt.Errorf("%w after: %d jobs, at most %d", ErrInvalid, len(after), MaxAfter)
	}
	for i, n := range after {
		switch {
		case ValidateName("job", n) != nil:
			return fmt.Errorf("%w after: job name %q: want 1 to 64 characters of A-Z a-z 0-9 _ -", ErrInvalid, clip(n))
		case n == name && name != "":
			return fmt.Errorf("%w after: the job cannot come after itself", ErrInvalid)
		case slices.Contains(after[:i], n):
			return fmt.Errorf("%w after: %q is in it twice", ErrInvalid, n)
		}
	}
	return nil
}

// noSource has no slots.
type noSource struct{}

func (noSource) next(int64, int64) (int64, bool) { return 0, false }
func (noSource) key() string                     { return "none" }

// Cycle returns jobs that come after each other in a circle, so that none of them
// can ever start, beginning and ending with the same one; nil when there is none.
// Jobs that are named and not among these are not looked into.
func Cycle(jobs []Job) []string {
	after := map[string][]string{}
	for _, j := range jobs {
		after[j.Name] = j.After
	}
	const onPath, done = 1, 2
	seen := map[string]int{}
	var path []string
	var visit func(name string) []string
	visit = func(name string) []string {
		switch seen[name] {
		case done:
			return nil
		case onPath:
			return append(slices.Clone(path[slices.Index(path, name):]), name)
		}
		seen[name] = onPath
		path = append(path, name)
		for _, before := range after[name] {
			if before == name {
				continue // which Validate says
			}
			if circle := visit(before); circle != nil {
				return circle
			}
		}
		path = path[:len(path)-1]
		seen[name] = done
		return nil
	}
	for _, j := range jobs {
		if circle := visit(j.Name); circle != nil {
			return circle
		}
	}
	return nil
}

// CheckCycle is the error that there is a Cycle; it wraps ErrInvalid.
func CheckCycle(jobs []Job) error {
	if circle := Cycle(jobs); circle != nil {
		return fmt.Errorf("%w after: a circle, in which no job can start: %s", ErrInvalid, strings.Join(circle, " after "))
	}
	return nil
}

// Chained reports whether the job came after others at that time.
func (e Entry) Chained(at time.Time) bool {
	p, ok := e.PlanAt(at)
	return ok && len(p.Plan.After) > 0
}

// Chain is what follows from a slot that has succeeded, for one job, e's, that
// comes after its job: the messages of that job's slot of the same instant or
// token. before are the records of all the jobs that e's comes after, of that slot,
// as far as there are some. None are returned while one has not succeeded.
//
// The slot is due when the last of them had succeeded, which all who ask see alike.
// A job comes after slots that succeed while it is there, not after the past.
// It is on time if d, the message of the one that was last seen to, was. If the job
// is paused its slot is recorded as missed: it would vanish otherwise, since
// nothing comes back to it.
func Chain(e Entry, before []Record, d Delivery) []Message {
	after := e.Job.After
	if len(after) == 0 || len(before) < len(after) {
		return nil
	}
	m := Message{
		Slot: d.Slot.Whole(), JobRevision: e.Revision, Chained: true,
		CaughtUp: d.CaughtUp || d.Offer > 0, Backfill: d.Backfill,
	}
	m.Slot.Job = e.Job.Name
	for _, r := range before {
		if r.State != Succeeded {
			return nil
		}
		m.Due = latest(m.Due, r.Finished)
	}
	if !e.Chained(m.Due) {
		return nil
	}
	if e.Paused {
		m.Missed = 1
		return []Message{m}
	}
	return m.parts(e.Job.WithDefaults().Shards)
}
