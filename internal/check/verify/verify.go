package verify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

const (
	// Settle is how long ago a slot must have been due to be judged.
	Settle = 5 * time.Second

	// Patience is how long the next step of a slot may be overdue: the sweep of the fleet finds
	// lost slots within that time.
	Patience = 2 * time.Minute

	// retentionMargin is the margin around the ledger's retention, for inexact clocks.
	retentionMargin = time.Minute
)

// Config says what to check.
type Config struct {
	// From and To bound the slots' instants: From inclusive, To exclusive.
	From, To time.Time

	// Now is the broker's time, read before everything else.
	Now time.Time

	Settings job.Settings

	// Watermark is the stored watermark. Zero: there is none.
	Watermark exchange.Watermark

	// Nodes are the records of the nodes.
	Nodes []exchange.NodeEvent

	// Jobs are the jobs to check. Empty: all.
	Jobs []string

	// Unreadable reports whether the registry has a definition that cannot be read.
	Unreadable bool

	// Progress, if set, is called for each job that is walked to its end.
	Progress func()
}

// Check is one verification. First call Event, Waiting and Record, in this order. To look at the
// problems a second time, call Waiting again with all messages, and then Record or Unreadable for
// each of Problems. Problems and Report may be called after each pass. A Check is not safe for
// concurrent use.
type Check struct {
	cfg       Config
	timelines map[string]*timeline
	before    map[string][]followed // by the job that others come after
	nodes     map[string]exchange.NodeEvent
	outcomes  map[job.State]int
	beside    int
	lateness  histogram
	notJudged map[string]*leftOut
}

// New begins a verification of the jobs with these entries.
func New(cfg Config, entries []plans.Entry) *Check {
	cfg.Settings = cfg.Settings.WithDefaults()
	c := &Check{
		cfg: cfg, timelines: map[string]*timeline{}, before: map[string][]followed{}, nodes: map[string]exchange.NodeEvent{},
		outcomes: map[job.State]int{}, notJudged: map[string]*leftOut{},
	}
	for _, n := range cfg.Nodes {
		c.nodes[n.Name] = n
	}
	schedules := map[string]*job.Schedule{} // a million jobs have a few hundred schedules
	for i := range entries {
		if e := &entries[i]; c.wanted(e.Job.Name) {
			c.timelines[e.Job.Name] = c.plan(e, schedules)
		}
	}
	return c
}

func (c *Check) wanted(name string) bool {
	return len(c.cfg.Jobs) == 0 || slices.Contains(c.cfg.Jobs, name)
}

// plan returns the timeline of a job, with the slots that should exist.
func (c *Check) plan(e *plans.Entry, schedules map[string]*job.Schedule) *timeline {
	l := newTimeline(e.Job.Name, e)
	if e.Paused {
		c.leaveOut(l.name, "what falls due while it is paused", 0)
	}
	plans := e.Plans()
	first, last := ceil(c.cfg.From), ceil(c.cfg.To)-1
	if known := plans[0].From.Unix() + 1; first < known {
		c.nothingDue(l.name, "before the job had a plan that is known")
		first = known
	}
	if kept := ceil(c.cfg.Now.Add(retentionMargin - c.cfg.Settings.Retention)); first < kept {
		c.leaveOut(l.name, fmt.Sprintf("before %s: the ledger forgets after %v", time.Unix(kept, 0).UTC().Format(time.RFC3339), c.cfg.Settings.Retention), 0)
		first = kept
	}
	if c.cfg.To.After(c.cfg.Now) {
		c.nothingDue(l.name, "after now")
	}
	for _, p := range plans {
		s, err := job.ParseSchedule(l.name, p.Plan)
		if err != nil {
			c.leaveOut(l.name, fmt.Sprintf("a plan that cannot be computed: %v", err), 0)
			continue
		}
		if shared, ok := schedules[s.Key()]; ok {
			s = shared
		}
		schedules[s.Key()] = s
		for _, part := range e.Stretches(p, s) {
			if judged := c.stretch(part, first, last); judged.first <= judged.last {
				l.stretches = append(l.stretches, judged)
			}
		}
	}
	l.begin()
	c.chain(l)
	return l
}

// stretch returns the part, from first to last, that is judged.
func (c *Check) stretch(part plans.Stretch, first, last int64) stretch {
	due := func(t time.Time) int64 { return t.Add(-part.Schedule.Delay()).Unix() }
	s := stretch{part.Schedule, max(first, part.After.Unix()+1), min(last, due(c.cfg.Now)), due(c.cfg.Now.Add(-Settle)) + 1}
	if !part.Until.IsZero() {
		s.last = min(s.last, part.Until.Unix())
	}
	if part.Paused && c.cfg.Now.Sub(part.Since) < Settle {
		s.young = s.first // the pause has just ended: its slots are published now
	}
	return s
}

// timeline returns the timeline of a job, nil if the job is not checked.
func (c *Check) timeline(name string) *timeline {
	l := c.timelines[name]
	if l == nil && c.wanted(name) {
		l = newTimeline(name, nil)
		c.timelines[name] = l
		reason := "it was removed: the registry has no definition of it"
		if c.cfg.Unreadable {
			reason = "no definition of it can be read"
		}
		c.leaveOut(name, reason, 0)
	}
	return l
}

// inRange reports whether the slot, or the publication of a triggered run, lies
// between From and To.
func (c *Check) inRange(s job.Slot, published time.Time) bool {
	at := s.At
	if s.Token != "" {
		at = published
	}
	return !at.Before(c.cfg.From) && at.Before(c.cfg.To)
}

// Event adds an event.
func (c *Check) Event(e job.Event) {
	s, err := job.ParseSlotID(e.ID)
	if err != nil || !c.wanted(s.Job) || s.Token == "" && !c.inRange(s, time.Time{}) {
		return
	}
	l := c.timeline(s.Job)
	switch {
	case e.Reopened:
		l.reported.take(s.At.Unix())
		delete(l.reportedShards, s)
		l.reopened[s] = true
	case s.Token != "" || s.Range || !job.State(e.Kind).Final():
	case l.ended(s):
		l.doubled[s] = "events reported two outcomes, the later one: " + string(e.Kind)
	case s.Shards > 0:
		l.reportedShards[s] = true
	default:
		l.reported.add(s.At.Unix())
	}
}

// Waiting adds a message of the stream of slots.
func (c *Check) Waiting(m core.Message, published time.Time) {
	s := m.Slot
	overdue := c.cfg.Now.Sub(plans.Later(m.Due, published)) > Patience
	switch {
	case !c.wanted(s.Job):
	case s.Range:
		l := c.timeline(s.Job)
		l.coming = append(l.coming, span{s.At.Unix(), m.MissedLast.Unix()})
	case s.Token != "": // the later of two messages counts
		c.timeline(s.Job).tokens[s.Token] = overdue && c.inRange(s, published)
	case !c.inRange(s, published):
	default:
		l, unix := c.timeline(s.Job), s.At.Unix()
		switch {
		case !overdue:
			l.recent.add(unix)
			l.overdue.take(unix) // the later of two messages counts
		case !l.waiting.has(unix): // otherwise it is the second look at a slot with a record
			l.overdue.add(unix)
		}
		l.waiting.add(unix)
	}
}

// Record adds a record of the ledger, which the broker stored at written (zero: not known).
// The later of two records of a slot counts.
func (c *Check) Record(r job.Record, written time.Time) {
	s := r.Slot
	c.judgeSuccessors(r)
	judged := c.timelines[s.Job] != nil && c.timelines[s.Job].chain.seen(s)
	switch {
	case !c.wanted(s.Job):
		return
	case s.Range:
		l := c.timeline(s.Job)
		l.missed = append(l.missed, span{s.At.Unix(), r.Last.Unix()})
		return
	case !c.inRange(s, r.Published):
		return
	}
	l := c.timeline(s.Job)
	_, again := l.unsettled[s]
	delete(l.unsettled, s)
	switch {
	case s.Shards > 0: // the whole slot is counted
	case s.Token != "":
		if l.tokens[s.Token] {
			l.tokens[s.Token] = false
		}
		c.beside += count(!again && !judged)
	default:
		unix := s.At.Unix()
		l.overdue.take(unix)
		l.pass(unix)
		c.beside += count(!l.unrecorded.take(unix) && !again)
	}
	if why := l.endedTwice(r); why != "" {
		l.doubled[s] = why
	}
	if by := l.earlyBy(r, written); by > 0 {
		l.early[s] = fmt.Sprintf("it was started %v before it was due", by.Round(time.Millisecond))
	}
	started := time.Time{}
	if n := len(r.Attempts); n > 0 {
		started = r.Attempts[n-1].Started
		if first := r.Attempts[0]; !again && first.Number == 1 && !r.Due.IsZero() {
			c.lateness.add(first.Started.Sub(r.Due))
		}
	}
	switch {
	case r.State.Final() && s.Shards > 0:
	case r.State.Final():
		c.outcomes[r.State]++
	default:
		l.unsettled[s] = unsettled{r.State, r.Node, started, r.RetryAt, r.Due, r.Queue, r.Shards}
	}
}

// Unreadable says that the record of a slot cannot be read.
func (c *Check) Unreadable(s job.Slot) {
	l := c.timeline(s.Job)
	if l == nil {
		return
	}
	l.chain.seen(s)
	if s.Token != "" {
		return
	}
	l.overdue.take(s.At.Unix())
	if l.unrecorded.take(s.At.Unix()) {
		l.slots--
		c.leaveOut(s.Job, "its record cannot be read", 1)
	}
}

// finish walks every job to its end.
func (c *Check) finish() []*timeline {
	timelines := slices.SortedFunc(maps.Values(c.timelines), func(x, y *timeline) int { return cmp.Compare(x.name, y.name) })
	for _, l := range timelines {
		if c.cfg.Progress != nil {
			c.cfg.Progress()
		}
		beside, soon := l.judgeChain()
		c.beside -= beside
		if soon > 0 {
			c.leaveOut(l.name, fmt.Sprintf("what it comes after succeeded less than %v ago", Patience), soon)
		}
		missed, young := l.end()
		if missed > 0 {
			c.outcomes[job.Missed] += missed
		}
		if young > 0 {
			c.leaveOut(l.name, fmt.Sprintf("due less than %v ago", Settle), young)
		}
	}
	return timelines
}

func ceil(t time.Time) int64 {
	unix := t.Unix()
	return unix + int64(count(t.Nanosecond() > 0))
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
