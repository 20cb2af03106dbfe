package torture

import (
	"time"

	"github.com/cronce-io/cronce/internal/lab/torture/promise"
)

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
