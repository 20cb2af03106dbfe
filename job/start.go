package job

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/schedule/cron"
)

// A job without a schedule is started by other jobs (Job.After), by messages of a stream
// (Job.On), or only by triggers (OnDemand). The Schedule of its plan has no slots, so
// producers, verify and next find none.

// maxSubject bounds a subject, in bytes. The server closes a connection that sends a
// protocol line of more than 4 KiB.
const maxSubject = 1024

// validateSubject returns an error if s is not a subject, or has wildcards and wild is
// false.
func validateSubject(field, s string, wild bool) error {
	bad := func(why string) error {
		return fmt.Errorf("%w %s %q: %s, like orders.paid", ErrInvalid, field, codec.Clip(s), why)
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
			return fmt.Errorf("%w %s %q: want > at the end only, like orders.>", ErrInvalid, field, codec.Clip(s))
		}
	}
	return nil
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// startedOtherwise reports whether jobs, messages or triggers start the plan's job, and not a
// schedule.
func (p Plan) startedOtherwise() bool {
	return len(p.After) > 0 || !p.On.IsZero() || p.Schedule == OnDemand
}

// Scheduled reports whether the plan has slots of its own. It is false for the plan of a job
// that other jobs, messages or only triggers start.
func (p Plan) Scheduled() bool { return p.Schedule != "" && p.Schedule != OnDemand }

// Start returns a short text that says what starts the job: its schedule, "after extract",
// "on ORDERS orders.paid" or "when triggered".
func (p Plan) Start() string {
	switch {
	case len(p.After) > 0:
		return "after " + strings.Join(p.After, ", ")
	case !p.On.IsZero():
		return p.On.String()
	case p.Schedule == OnDemand:
		return "when triggered"
	}
	return p.Schedule
}

// parseWithoutSlots validates the plan of a job that jobs, messages or triggers start, and returns
// a schedule without slots.
func parseWithoutSlots(name string, p Plan) (*Schedule, error) {
	f := faults{errs: []error{p.On.validate(), validateAfter(name, p.After)}}
	bad := f.add
	bad(p.Schedule != "" && len(p.After) > 0, "after: the job has a schedule too: want one of them")
	bad(p.Schedule != "" && !p.On.IsZero(), "on: the job has a schedule too: want one of them")
	bad(len(p.After) > 0 && !p.On.IsZero(), "after and on at once: want one of them")
	for _, unused := range []struct {
		name string
		set  bool
	}{{"timezone", p.Timezone != "UTC"}, {"spread", p.Spread != 0}, {"from", !p.From.IsZero()}, {"until", !p.Until.IsZero()}, {"exclude", len(p.Exclude) > 0}} {
		bad(unused.set && !p.Scheduled(), "%s: it applies to schedules only, and this job has none (%s)", unused.name, p.Start())
	}
	if err := errors.Join(f.errs...); err != nil {
		return nil, err
	}
	return &Schedule{zone: time.UTC, first: cron.LastInstant + 1, last: cron.LastInstant, key: "none"}, nil // its bounds leave no instant
}

func validateAfter(name string, after []string) error {
	if len(after) > MaxAfter {
		return fmt.Errorf("%w after: %d jobs, at most %d", ErrInvalid, len(after), MaxAfter)
	}
	for i, n := range after {
		switch {
		case codec.ValidateName("job", n) != nil:
			return fmt.Errorf("%w after: job name %q: want 1 to 64 characters of A-Z a-z 0-9 _ -", ErrInvalid, codec.Clip(n))
		case n == name && name != "":
			return fmt.Errorf("%w after: the job cannot come after itself", ErrInvalid)
		case slices.Contains(after[:i], n):
			return fmt.Errorf("%w after: %q is listed twice", ErrInvalid, n)
		}
	}
	return nil
}

// On selects the messages that each start one run of a job. The zero value selects none.
type On struct {
	// Stream is the name of a JetStream stream, of up to 255 bytes. Subject is one of its
	// subjects, of up to 1,024 bytes, and may have wildcards.
	Stream  string `json:"stream"`
	Subject string `json:"subject"`
}

// IsZero reports whether o selects no messages.
func (o On) IsZero() bool { return o == On{} }

// String returns "on STREAM SUBJECT".
func (o On) String() string { return "on " + o.Stream + " " + o.Subject }

// validate accepts the zero value.
func (o On) validate() error {
	switch {
	case o.IsZero():
		return nil
	case o.Stream == "" || len(o.Stream) > 255 || strings.ContainsAny(o.Stream, " .*>/\\") || hasControl(o.Stream):
		return fmt.Errorf("%w on.stream %q: want the name of a stream, like ORDERS", ErrInvalid, codec.Clip(o.Stream))
	}
	return validateSubject("on.subject", o.Subject, true)
}
