package peer

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/lab/conformance"
)

// Scenario brings about a situation, often a rare one, and checks what the client does.
type Scenario struct {
	Name string

	// Musts are the IDs of the MUSTs that the scenario checks. Says describes the situation in a line.
	Musts []string
	Says  string

	play func(*stage)
}

// Result is how a client did in a scenario.
type Result struct {
	Scenario Scenario
	Broken   []Break
	Left     string   // why the client leaves it to others
	Story    []string // what happened, if something is broken
	Took     time.Duration
}

// Scenarios returns all scenarios, the most important first.
func Scenarios() []Scenario {
	return slices.Concat(workerScenarios, followScenarios, answerScenarios, valueScenarios, ownerScenarios, producerScenarios, triggerScenarios)
}

// Names are the names of all scenarios.
func Names() []string { return codec.Map(Scenarios(), func(s Scenario) string { return s.Name }) }

// Config configures Run.
type Config struct {
	Command   conformance.Command
	Scenarios []Scenario

	// AtOnce is how many scenarios run at the same time.
	AtOnce int

	// Longest bounds the duration of one scenario.
	Longest time.Duration

	// Result is called for each scenario, in no particular order, by one goroutine at a time.
	Result func(Result)
}

// Run plays the scenarios, each with its own server, namespace and process of the client. It returns
// an error if a scenario could not be played, or took longer than Longest. What the client breaks is
// no error.
func Run(ctx context.Context, cfg Config) error {
	dir, err := os.MkdirTemp("", "cronce-peer-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var mu sync.Mutex
	group, running := errgroup.WithContext(context.WithValue(ctx, commandKey{}, cfg.Command))
	group.SetLimit(max(cfg.AtOnce, 1))
	for i, sc := range cfg.Scenarios {
		group.Go(func() error {
			if running.Err() != nil {
				return nil
			}
			r, err := play(running, filepath.Join(dir, strconv.Itoa(i)), sc, cfg.Longest)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case running.Err() != nil:
			case err != nil:
				return fmt.Errorf("play %s: %w", sc.Name, err)
			default:
				cfg.Result(r)
			}
			return nil
		})
	}
	return cmp.Or(group.Wait(), context.Cause(ctx))
}

func play(ctx context.Context, dir string, sc Scenario, longest time.Duration) (r Result, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("the scenario took longer than %v", longest))
	defer cancel()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return r, err
	}
	s, err := newStage(ctx, dir)
	if err != nil {
		return r, err
	}
	defer s.close()
	s.watch()
	began := time.Now()
	r.Scenario = sc
	done := make(chan struct{})
	go func() { // a goroutine of its own, because a failed step ends it
		defer close(done)
		defer func() {
			switch p := recover().(type) {
			case nil:
			case stop:
				err = p.err
			case leave:
				r.Left = p.why
			default:
				panic(p)
			}
		}()
		sc.play(s)
	}()
	<-done
	s.mu.Lock()
	r.Broken = slices.Clone(s.broken)
	s.mu.Unlock()
	r.Took = time.Since(began)
	if len(r.Broken) > 0 {
		err = nil // what is broken explains why a later step failed
		r.Story = s.story()
	}
	return r, err
}

// Named returns the scenarios of these names.
func Named(names ...string) []Scenario {
	return slices.DeleteFunc(Scenarios(), func(s Scenario) bool { return !slices.Contains(names, s.Name) })
}
