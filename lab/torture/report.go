package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
	"github.com/cronce-io/cronce/lab/torture/promise"
)

// Report is the result of a run.
type Report struct {
	Seed       uint64
	Faults     map[string]int // how many of each kind happened
	Tally      promise.Tally
	Violations []promise.Violation

	// Inconclusive names the events without which a run proves nothing, and that this run has not
	// seen. Empty: the run is conclusive.
	Inconclusive []string
}

// report reads the final state, now that the fleet has stopped, and checks the history.
func (t *torture) report(ctx context.Context) (Report, error) {
	t.setPhase("checking")
	h, err := t.history(ctx)
	if err != nil {
		return Report{}, err
	}
	if err := h.WriteTrace(filepath.Join(t.cfg.Dir, "writes.txt")); err != nil {
		return Report{}, err
	}
	violations, tally := promise.Check(h)
	_, seen := t.witness.counts()
	tally.Redelivered, tally.Late, tally.Batched = seen.Redelivered, seen.Late, seen.Batched
	verified, err := t.verify(ctx)
	if err != nil {
		return Report{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := Report{
		Seed: t.cfg.Seed, Faults: maps.Clone(t.faults), Tally: tally,
		Violations: slices.Concat(t.violations, violations, verified),
	}
	for what, n := range map[string]int{"takeovers": tally.Takeovers, "refused completions": tally.Refused, "late redeliveries": tally.Late} {
		if n == 0 {
			r.Inconclusive = append(r.Inconclusive, what)
		}
	}
	slices.Sort(r.Inconclusive)
	return r, nil
}

// skew bounds the difference between the clocks of two servers. Servers that torture starts are on
// one machine.
func (t *torture) skew() time.Duration {
	if t.cfg.Servers > 0 {
		return 2 * time.Millisecond
	}
	return 500 * time.Millisecond
}

func (t *torture) history(ctx context.Context) (promise.History, error) {
	h := promise.History{
		Lease: t.cfg.Lease, Cases: t.cases, From: t.from, Until: t.until, Broker: t.clock, Skew: t.skew(),
		Publishers: map[string]bool{},
	}
	for i, m := range t.members {
		h.Publishers[m.name] = i > 0 && t.cfg.Publishes(i)
	}
	var err error
	if h.Lines, err = readRecord(t.cfg.Dir); err != nil {
		return h, err
	}
	t.mu.Lock()
	h.Deaths = maps.Clone(t.deaths)
	t.mu.Unlock()
	unreadable := func(detail string) { t.addViolation(promise.Violation{Rule: "unreadable", Detail: detail}) }
	for _, detail := range t.witness.into(&h) {
		unreadable(detail)
	}
	if h.Records, err = t.records(ctx, unreadable); err != nil {
		return h, err
	}
	nodes, err := t.store.Nodes().List(ctx)
	if err != nil {
		return h, err
	}
	for _, n := range nodes {
		if n.Err == nil {
			h.Final = append(h.Final, promise.NodeWrite{Seq: n.Revision, Time: n.Time, Node: n.Node})
		}
	}
	for e, err := range t.store.Events(ctx, kv.EventFilter{}) {
		if err != nil {
			return h, err
		}
		h.Events = append(h.Events, e)
	}
	return h, nil
}

// records reads the ledger, and calls unreadable for each record that cannot be read.
func (t *torture) records(ctx context.Context, unreadable func(detail string)) (map[job.Slot]promise.LedgerWrite, error) {
	records := map[job.Slot]promise.LedgerWrite{}
	for e, err := range t.store.Ledger().List(ctx, kv.ListFilter{}) {
		switch {
		case errors.Is(err, job.ErrInvalid), errors.Is(err, job.ErrVersion):
			unreadable(err.Error())
		case err != nil:
			return nil, err
		default:
			records[e.Record.Slot] = promise.LedgerWrite{Seq: e.Revision, Time: e.Time, Record: e.Record, Slot: e.Record.Slot}
		}
	}
	return records, nil
}

// unfinished counts the slots that must get an outcome and have none.
func (t *torture) unfinished(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	records, err := t.records(ctx, func(string) {}) // the report has the unreadable ones
	if err != nil {
		return 0, err
	}
	lines, err := readRecord(t.cfg.Dir)
	if err != nil {
		return 0, err
	}
	open, expected := 0, promise.Expected(t.cases, t.from, t.until, lines)
	promise.SpreadRanges(records, expected)
	for s := range expected {
		if !records[s].Record.State.Final() {
			open++
		}
	}
	return open, nil
}

// verify does what "cronce verify" does to the final state, and returns the problems as violations.
func (t *torture) verify(ctx context.Context) (found []promise.Violation, err error) {
	c := client.Attach(attach.Of(t.nc, t.store, attach.Options{Operator: "torture", Logger: t.cfg.Logger}))
	_, err = c.Verify(ctx, client.VerifyOptions{From: t.from, To: t.until}, func(p client.SlotProblem) error {
		found = append(found, promise.Violation{Rule: "verify", Slot: p.ID, Detail: fmt.Sprintf("cronce verify finds: %s: %s", p.Problem, p.Detail)})
		return nil
	})
	return found, err
}

// Status is the progress of a run.
type Status struct {
	Phase       string
	Passed      time.Duration
	Outcomes    int
	Redelivered int
	Faults      int
	Violations  int
}

func (t *torture) setPhase(phase string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phase = phase
}

func (t *torture) count(fault string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults[fault]++
}

func (t *torture) noteDeath(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deaths[p.name] = p.died
}

func (t *torture) addViolation(v promise.Violation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.violations = append(t.violations, v)
}

// reportProgress calls Config.Progress every second, until ended is closed.
func (t *torture) reportProgress(ended <-chan struct{}) {
	began := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
			t.cfg.Progress(t.status(time.Since(began)))
		}
	}
}

func (t *torture) status(passed time.Duration) Status {
	outcomes, seen := t.witness.counts()
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Status{Phase: t.phase, Passed: passed, Outcomes: outcomes, Redelivered: seen.Redelivered, Violations: len(t.violations)}
	for _, n := range t.faults {
		s.Faults += n
	}
	return s
}
