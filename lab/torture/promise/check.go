// Package promise checks the history of a run of torture against what Cronce promises. Check is pure:
// it takes a history and returns violations.
package promise

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/lab/torture/plan"
)

// Check checks a history. It does not rely on what the code under test says about itself if there is
// another source.
func Check(h History) ([]Violation, Tally) {
	c := &checker{
		h: h, cases: map[string]plan.Case{}, runs: map[job.Slot][]*run{}, pauses: map[string][]Line{},
		writes: map[job.Slot][]LedgerWrite{}, bySeq: map[uint64]LedgerWrite{}, nodes: map[string][]NodeWrite{},
		first: map[job.Slot]time.Time{},
	}
	for _, step := range []func(){
		c.index, c.readRuns, c.findStalls,
		c.checkOutcomes, c.checkLedger, c.checkClaims, c.checkRuns, c.checkNodes, c.checkOverlaps, c.checkLocks, c.checkPlaces, c.checkReplaced, c.checkPolicies,
		c.checkMessages, c.checkPublished, c.checkWatermark, c.checkAcks, c.checkSlowness, c.count,
	} {
		step()
	}
	return c.violations, c.tally
}

type checker struct {
	h     History
	cases map[string]plan.Case

	expected map[job.Slot]bool
	runs     map[job.Slot][]*run
	all      []*run
	pauses   map[string][]Line // by process
	faults   []Line
	ups      []Line // lines of the kind LineUp
	held     []Line // lines of the kind LineHeld

	writes map[job.Slot][]LedgerWrite
	bySeq  map[uint64]LedgerWrite
	nodes  map[string][]NodeWrite

	// first is when the first message of each slot was stored.
	first map[job.Slot]time.Time

	excuses    int // starts after a death that a freeze explains
	violations []Violation
	tally      Tally
}

// slack bounds the error of a node's estimate of the broker's time. The node stores such a bound in
// its record. slack caps that bound, because it comes from the code under test, and adds a little.
func (c *checker) slack(node string) time.Duration {
	const most, little = 600 * time.Millisecond, 150 * time.Millisecond
	stated := time.Duration(0)
	for _, w := range c.nodes[node] {
		stated = max(stated, w.Node.ClockError)
	}
	return min(stated, most) + little
}

func (c *checker) bad(rule string, s job.Slot, evidence []string, format string, args ...any) {
	v := Violation{Rule: rule, Detail: fmt.Sprintf(format, args...), Evidence: evidence}
	if s.Job != "" {
		v.Slot = s.ID()
		if r, ok := c.h.Records[s]; ok {
			v.Evidence = append(v.Evidence, "ledger at the end: "+r.String())
		}
	}
	c.violations = append(c.violations, v)
}

// index builds the checker's maps of jobs and writes.
func (c *checker) index() {
	for _, k := range c.h.Cases {
		c.cases[k.Job.Name] = k
	}
	c.expected = Expected(c.h.Cases, c.h.From, c.h.Until, c.h.Lines)
	c.spreadRanges()
	for _, w := range c.h.Ledger {
		c.writes[w.Slot] = append(c.writes[w.Slot], w)
		c.bySeq[w.Seq] = w
	}
	for s, w := range c.h.Records {
		if _, seen := c.bySeq[w.Seq]; !seen {
			w.Alone = true
			c.writes[s] = append(c.writes[s], w)
			c.bySeq[w.Seq] = w
		}
	}
	for s := range c.writes {
		slices.SortFunc(c.writes[s], func(a, b LedgerWrite) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	seen := map[uint64]bool{}
	for _, w := range slices.Concat(c.h.Nodes, c.h.Final) {
		if !seen[w.Seq] {
			seen[w.Seq] = true
			c.nodes[w.Node.Name] = append(c.nodes[w.Node.Name], w)
		}
	}
	for n := range c.nodes {
		slices.SortFunc(c.nodes[n], func(a, b NodeWrite) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	for _, w := range c.h.Slots {
		c.published(w.Message.Slot, w.Time)
	}
	for s, w := range c.h.Records {
		if !w.Record.Published.IsZero() {
			c.published(s, w.Record.Published)
		}
	}
}

// Expected returns the slots that must exist: those that the schedules have, and those of triggers
// that were acknowledged.
func Expected(cases []plan.Case, from, until time.Time, lines []Line) map[job.Slot]bool {
	all := map[job.Slot]bool{}
	for _, k := range cases {
		for _, s := range k.Slots(from, until) {
			all[s] = true
		}
	}
	for _, l := range lines {
		if s, err := job.ParseSlotID(l.Slot); l.What == LineOrder && err == nil {
			all[s] = true
		}
	}
	return all
}

// published notes that a message of the slot was stored at the given time.
func (c *checker) published(s job.Slot, at time.Time) {
	if known, ok := c.first[s]; !ok || at.Before(known) {
		c.first[s] = at
	}
}

// slots returns the expected slots, oldest first.
func (c *checker) slots() []job.Slot {
	return slices.SortedFunc(maps.Keys(c.expected), compareSlots)
}

func compareSlots(a, b job.Slot) int {
	return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Job, b.Job), cmp.Compare(a.Token, b.Token), cmp.Compare(a.Shard, b.Shard))
}

// checkOutcomes checks that every expected slot has an outcome that its policy allows, and
// that no other slot has a record.
func (c *checker) checkOutcomes() {
	for _, s := range c.slots() {
		w, ok := c.h.Records[s]
		k := c.cases[s.Job]
		switch {
		case !ok:
			c.bad("missing", s, c.trace(s), "it has no record: it is lost")
		case !w.Record.State.Final():
			c.bad("unfinished", s, c.trace(s), "it has no outcome, although the faults are over: it is %s", w.Record.State)
		case !slices.Contains(k.Outcomes, w.Record.State):
			c.bad("outcome", s, c.trace(s), "it is %s, and its policy allows only %v", w.Record.State, k.Outcomes)
		case k.Job.Shards > 0 && s.Shards == 0:
			c.checkWhole(s, w.Record)
		case w.Record.State == job.Succeeded:
			c.checkSuccess(s, w.Record)
		}
	}
	for _, s := range slices.SortedFunc(maps.Keys(c.h.Records), compareSlots) {
		if !c.expected[s] && !c.cases[s.Job].Triggered {
			c.bad("unexpected", s, c.trace(s), "it has a record, but no plan of its job has this slot")
		}
	}
}

// checkSuccess checks that a slot that is recorded as succeeded has a successful run, by the attempt
// that the record names. It also checks that no later run started, and that no earlier attempt is
// recorded as succeeded.
func (c *checker) checkSuccess(s job.Slot, r job.Record) {
	last := job.Attempt{}
	if n := len(r.Attempts); n > 0 {
		last = r.Attempts[n-1]
	}
	found := false
	for _, run := range c.runs[s] {
		if run.fence == last.Fence && run.attempt == last.Number && run.node == last.Node && run.ended && run.result == plan.ResultOK {
			found = true
		}
		if run.attempt > last.Number {
			c.bad("ran after success", s, evidence(run), "%s started although attempt %d had succeeded", run, last.Number)
		}
	}
	if !found {
		c.bad("success without a run", s, c.trace(s), "it is recorded as succeeded by attempt %d at fence %d of %s, and no handler of that attempt recorded a success", last.Number, last.Fence, last.Node)
	}
	for _, a := range r.Attempts[:max(len(r.Attempts)-1, 0)] {
		if a.Error == "" {
			c.bad("two successes", s, c.trace(s), "attempts %d and %d are both recorded as succeeded", a.Number, last.Number)
		}
	}
}

// checkWhole checks that a split slot ran only as its shards, got its outcome after all of them, and
// succeeded only if all of them did.
func (c *checker) checkWhole(s job.Slot, r job.Record) {
	n := c.cases[s.Job].Job.Shards
	if len(c.runs[s]) > 0 || r.Shards != n {
		c.bad("whole", s, evidence(c.runs[s]...), "it has %d shards and ran %d times as a whole; want %d shards and no run", r.Shards, len(c.runs[s]), n)
	}
	for i := range n {
		shard := s.WithShard(i+1, n)
		if r.State == job.Succeeded && c.h.Records[shard].Record.State != job.Succeeded {
			c.bad("whole", s, c.trace(shard), "it is recorded as succeeded, and its shard %s is not", shard)
		}
		whole, _ := c.finalOf(s)
		if end, ok := c.finalOf(shard); ok && end.Seq > whole.Seq {
			c.bad("whole", s, append(c.trace(s), c.trace(shard)...), "it got its outcome before its shard %s had one", shard)
		}
	}
}

// due returns the time before which a slot must not start. Zero: it was triggered and due immediately.
func (c *checker) due(s job.Slot) time.Time {
	var n int
	if _, err := fmt.Sscanf(s.Token, "key-%d", &n); err != nil {
		return s.At
	}
	_, at := c.cases[s.Job].Order(c.h.From, n)
	return at
}

// trace returns, as evidence, everything that is known about a slot.
func (c *checker) trace(s job.Slot) []string {
	lines := evidence(c.runs[s]...)
	for _, w := range c.writes[s] {
		lines = append(lines, "ledger: "+w.String())
	}
	for _, m := range c.h.Slots {
		if m.Message.Slot == s {
			lines = append(lines, fmt.Sprintf("message: %d stored at %s with ID %s", m.Seq, Stamp(m.Time), m.ID))
		}
	}
	return lines
}

// String formats a write for a report.
func (w LedgerWrite) String() string {
	r := w.Record
	text := fmt.Sprintf("revision %d over %d at %s: %s", w.Seq, w.Last, Stamp(w.Time), r.State)
	if w.Gone {
		return fmt.Sprintf("revision %d over %d at %s: deleted", w.Seq, w.Last, Stamp(w.Time))
	}
	text += fmt.Sprintf(" attempt %d node %s", r.Attempt, r.Node)
	if r.Error != "" {
		text += fmt.Sprintf(" error %.120q", r.Error)
	}
	return text
}

// Stamp formats a time for a report.
func Stamp(t time.Time) string { return t.UTC().Format("15:04:05.000000") }

func (c *checker) count() {
	t := Tally{Slots: len(c.expected), Outcomes: map[job.State]int{}, Attempts: len(c.all)}
	for _, w := range c.h.Records {
		t.Outcomes[w.Record.State]++
	}
	for s, runs := range c.runs {
		due := c.due(s)
		if at, _ := c.h.Broker.At(runs[0].start); !due.IsZero() && at.Sub(due) > t.Worst {
			t.Worst, t.WorstSlot = at.Sub(due), s.ID()
		}
	}
	for _, e := range c.h.Events {
		switch e.Kind {
		case job.EventTakeover:
			t.Takeovers++
		case job.EventRefused:
			t.Refused++
		case job.EventFenced:
			t.Fenced++
		}
	}
	c.tally = t
}
