package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// sabotage is a mutant that "cronce-lab torture" must find.
type sabotage struct {
	mutant

	// A run must find a violation of one of rules. duration is the duration of the run. Zero:
	// sabotageTime.
	rules    []string
	duration time.Duration
}

// sabotageSeed is the seed of every run, and sabotageTime its usual duration.
const (
	sabotageSeed = 3
	sabotageTime = time.Minute
)

var sabotages = []sabotage{
	{
		mutant: mutant{
			name: "no-margin", breaks: "a node trusts itself almost to the end of its lease",
			file: "internal/fleet/node/node.go",
			old:  "func Margin(lease time.Duration) time.Duration { return lease / 4 }",
			new:  "func Margin(lease time.Duration) time.Duration { return lease / 100 }",
		},
		rules: []string{"no margin", "outlived the lease"},
	},
	{
		mutant: mutant{
			name: "pause-after-a-slow-heartbeat", breaks: "a node waits before its next heartbeat even if the last one was slow",
			file: "internal/fleet/node/node.go",
			old:  "	if took >= most {\n		return 0\n	}",
			new:  "	if took >= most {\n		return 4 * most\n	}",
		},
		rules: []string{"slowness"},
	},
	{
		mutant: mutant{
			name: "retry-leaves-its-lock", breaks: "a slot that waits for its retry leaves its lock",
			file: "consumer/follow.go",
			old:  "if t.final && t.lock.entered {",
			new:  "if (t.final || t.rec.State == job.Retrying) && t.lock.entered {",
		},
		rules: []string{"place"},
	},
	{
		mutant: mutant{
			name: "no-sweep", breaks: "no sweep looks for slots whose message is lost",
			file: "internal/fleet/sweep/sweep.go",
			old:  "if err := s.turn(ctx); err != nil && ctx.Err() == nil {",
			new:  "if err := error(nil); err != nil && ctx.Err() == nil {",
		},
		rules: []string{"unfinished", "missing"},
	},
	{
		mutant: mutant{
			name: "replace-waits", breaks: "under replace a newer slot cancels no older one",
			file: "internal/core/lock.go",
			old:  "if e.Policy == job.OverlapReplace && e.OnTime && free <= 0 {",
			new:  "if false {",
		},
		rules: []string{"never replaced"},
	},
	{
		mutant: mutant{
			name: "latest-drops-nothing", breaks: "under latest all slots wait, not only the newest",
			file: "internal/core/lock.go",
			old:  "	at := d.Slot.At\n	if at.IsZero() {\n		at = d.Published\n	}\n	late := d.CaughtUp",
			new:  "	if policy == job.OverlapLatest {\n		policy = job.OverlapQueue\n	}\n	at := d.Slot.At\n	if at.IsZero() {\n		at = d.Published\n	}\n	late := d.CaughtUp",
		},
		rules: []string{"not only the newest"},
	},
	{
		mutant: mutant{
			name: "none-runs-the-newest", breaks: "catch_up none runs the newest of the late slots",
			file: "internal/core/plans/due.go",
			old:  "	case c.Policy == job.CatchUpNone:\n		return 0\n",
			new:  "	case c.Policy == job.CatchUpNone:\n		return 1\n",
		},
		duration: 4 * time.Minute, rules: []string{"caught up"}, // long enough for a silence of all producers
	},
	{
		mutant: mutant{
			name: "whole-without-its-last-shard", breaks: "a split slot has its outcome before its last shard has one",
			file: "consumer/record.go",
			old:  "shards := make([]job.Record, rec.Shards)\n		for i := range shards {",
			new:  "shards := make([]job.Record, rec.Shards-1)\n		for i := range shards {",
		},
		rules: []string{"whole"},
	},
	{
		mutant: mutant{
			name: "copies-of-a-producer-that-left", breaks: "when a producer leaves, no other producer publishes the copies of its slots",
			file: "producer/standby.go",
			old:  "if o.fleet.owner(c.def.name) == p {",
			new:  "if p != nil {",
		},
		rules: []string{"published late"},
	},
}

// sabotageAll tortures the named sabotages. If there are no names, it tortures all.
func sabotageAll(ctx context.Context, root, work string, names []string) error {
	var missed []string
	known := 0
	for _, s := range sabotages {
		if len(names) > 0 && !slices.Contains(names, s.name) {
			continue
		}
		known++
		began := time.Now()
		found, err := s.torture(ctx, root, work)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if err != nil {
			missed = append(missed, s.name)
			fmt.Printf("FAIL  %-28s %v\n", s.name, err)
			continue
		}
		fmt.Printf("ok    %-28s found by %q (%v)\n", s.name, found, time.Since(began).Round(time.Second))
	}
	switch {
	case known < len(names):
		return fmt.Errorf("unknown sabotage among %s", strings.Join(names, ", "))
	case len(missed) > 0:
		return fmt.Errorf("torture did not find %d of %d: %s", len(missed), known, strings.Join(missed, ", "))
	}
	return nil
}

// torture builds the sabotaged program, tortures it, and returns the rule whose violation was found.
func (s sabotage) torture(ctx context.Context, root, work string) (rule string, err error) {
	overlay, err := s.overlay(root, work)
	if err != nil {
		return "", err
	}
	program := filepath.Join(work, s.name)
	build := exec.CommandContext(ctx, "go", "build", "-overlay="+overlay, "-o", program, "./cmd/cronce-lab")
	build.Dir = filepath.Join(root, "lab")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("does not compile: %s", output)
	}
	defer os.Remove(program)
	run := exec.CommandContext(ctx, program, "torture", "--servers", "1", "--lease", "3s", "-o", "json",
		"--seed", fmt.Sprint(sabotageSeed), "--duration", cmp.Or(s.duration, sabotageTime).String())
	run.Cancel = func() error { return run.Process.Signal(os.Interrupt) } // then torture ends the processes that it started
	var output, log bytes.Buffer
	run.Stdout, run.Stderr = &output, &log
	err = run.Run()
	if run.ProcessState == nil {
		return "", err
	}
	return s.verdict(run.ProcessState.ExitCode(), output.String(), log.String())
}

// verdict returns the rule whose violation was found, or an error if the sabotage was not found.
func (s sabotage) verdict(code int, output, log string) (rule string, err error) {
	const found = 3
	if code != found {
		return "", fmt.Errorf("exit status %d, want %d: %s:\n%.2000s", code, found, s.breaks, log)
	}
	var others []string
	for line := range strings.Lines(output) {
		var v struct{ Rule string }
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			return "", fmt.Errorf("%q: %w", line, err)
		}
		if slices.Contains(s.rules, v.Rule) {
			return v.Rule, nil
		}
		others = append(others, v.Rule)
	}
	return "", fmt.Errorf("%s: want a violation of %q, found %q", s.breaks, s.rules, slices.Compact(others))
}
