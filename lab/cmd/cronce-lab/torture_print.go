package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/lab/torture"
	"github.com/cronce-io/cronce/lab/torture/promise"
)

// progress reports on stderr: as one changing line on a terminal, else as a line every
// 10 s.
type progress struct {
	a       *base.App
	f       tortureFlags
	printed time.Duration // when the last line was printed, from the start
}

func (p *progress) begin() {
	where := fmt.Sprintf("%d servers of its own", p.f.Servers)
	switch p.f.Servers {
	case 0:
		where = "the servers given"
	case 1:
		where = "a server of its own"
	}
	fmt.Fprintf(p.a.Stderr, "torture: seed %d, %v, %d workers and %d producers on %s, lease %v, namespace %s\n",
		p.f.Seed, p.f.Duration, p.f.Workers, p.f.Producers, where, p.f.Lease, p.a.Namespace)
}

func (p *progress) report(s torture.Status) {
	const every = 10 * time.Second
	line := fmt.Sprintf("torture: %s, %v of %v: %d outcomes, %d redeliveries, %d faults",
		s.Phase, s.Passed.Truncate(time.Second), p.f.Duration, s.Outcomes, s.Redelivered, s.Faults)
	if s.Violations > 0 {
		line += fmt.Sprintf(", %d violations", s.Violations)
	}
	switch {
	case p.a.StatusLine(line):
	case s.Passed-p.printed >= every:
		p.printed = s.Passed
		fmt.Fprintln(p.a.Stderr, line)
	}
}

// tortureSummary is the last line of the JSON output.
type tortureSummary struct {
	OK         bool           `json:"ok"`
	Conclusive bool           `json:"conclusive"`
	Never      []string       `json:"never,omitempty"`
	Seed       uint64         `json:"seed"`
	Duration   string         `json:"duration"`
	Namespace  string         `json:"namespace"`
	Servers    int            `json:"servers"`
	Workers    int            `json:"workers"`
	Producers  int            `json:"producers"`
	Lease      string         `json:"lease"`
	Faults     map[string]int `json:"faults"`
	promise.Tally
	WorstLate  float64 `json:"worst_late_ms"`
	WorstSlot  string  `json:"worst_slot,omitempty"`
	Violations int     `json:"violations"`
}

func printTorture(a *base.App, f tortureFlags, r torture.Report) error {
	summary := tortureSummary{
		OK: len(r.Violations) == 0 && len(r.Inconclusive) == 0, Conclusive: len(r.Inconclusive) == 0, Never: r.Inconclusive,
		Seed: r.Seed, Duration: f.Duration.String(), Namespace: a.Namespace, Servers: f.Servers, Workers: f.Workers, Producers: f.Producers,
		Lease: f.Lease.String(), Faults: r.Faults, Tally: r.Tally,
		WorstLate: float64(r.Tally.Worst.Microseconds()) / 1000, WorstSlot: r.Tally.WorstSlot, Violations: len(r.Violations),
	}
	var err error
	if a.Output == base.OutputJSON {
		if err = base.PrintLines(a, slices.Values(r.Violations)); err == nil {
			err = a.PrintJSON(summary)
		}
	} else {
		err = printTortureText(a, summary, r)
	}
	if err != nil {
		return err
	}
	switch {
	case len(r.Violations) > 0:
		return fmt.Errorf("%w: %d violations, with seed %d", base.ErrFound, len(r.Violations), r.Seed)
	case len(r.Inconclusive) > 0:
		return fmt.Errorf("%w: inconclusive: there were no %s", base.ErrFound, strings.Join(r.Inconclusive, " and no "))
	}
	return nil
}

func printTortureText(a *base.App, summary tortureSummary, r torture.Report) error {
	for _, v := range r.Violations {
		fmt.Fprintf(a.Stdout, "VIOLATION  %s", v.Rule)
		if v.Slot != "" {
			fmt.Fprintf(a.Stdout, "  %s", v.Slot)
		}
		fmt.Fprintf(a.Stdout, "\n  %s\n", v.Detail)
		for _, line := range v.Evidence {
			fmt.Fprintf(a.Stdout, "    %s\n", strings.ReplaceAll(line, "\n", "\n    "))
		}
	}
	t := base.NewTable(a.Stdout)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("seed", "%d", summary.Seed)
	row("faults", "%s", counts(summary.Faults))
	row("slots", "%d: %s", summary.Slots, counts(summary.Outcomes))
	row("attempts", "%d", summary.Attempts)
	row("nodes declared dead", "%d", summary.Fenced)
	row("takeovers", "%d", summary.Takeovers)
	row("refused completions", "%d", summary.Refused)
	row("redeliveries", "%d, %d of them of slots that were claimed or had their outcome", summary.Redelivered, summary.Late)
	row("stored in batches", "%d messages", summary.Batched)
	row("worst lateness", "%v (%s)", r.Tally.Worst.Round(time.Millisecond), cmp.Or(summary.WorstSlot, "-"))
	row("violations", "%d", summary.Violations)
	if err := t.Flush(); err != nil {
		return err
	}
	if !summary.Conclusive {
		_, err := fmt.Fprintf(a.Stdout, "inconclusive: there were no %s: run it for longer\n", strings.Join(summary.Never, " and no "))
		return err
	}
	return nil
}

// counts formats counts, largest first.
func counts[K ~string](of map[K]int) string {
	keys := slices.SortedFunc(maps.Keys(of), func(x, y K) int {
		if of[x] != of[y] {
			return of[y] - of[x]
		}
		return strings.Compare(string(x), string(y))
	})
	words := codec.Map(keys, func(k K) string { return fmt.Sprintf("%d %s", of[k], k) })
	return cmp.Or(strings.Join(words, ", "), "-")
}
