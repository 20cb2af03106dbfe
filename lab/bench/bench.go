package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Config configures Run. Connect, Namespace, Seconds, Jobs, Producers, Progress and Result are
// required.
type Config struct {
	// Connect opens a connection. Run closes it.
	Connect Connect

	// Namespace is the prefix of the names of everything that Run creates and removes again. Nothing
	// else may have that prefix.
	Namespace string

	// Replicas is the number of replicas of every stream. Zero: the default, three on a cluster.
	Replicas int

	// Slots is how many slots are published, and drained. Zero: as many as the server stores in about
	// a second, but at least minSlots and at most DefaultSlots.
	Slots int

	// Seconds is how long lateness and cost are measured. Jobs is how many jobs are due every
	// second meanwhile.
	Seconds, Jobs int

	// Producers is how many producers publish, each on its own connection.
	Producers int

	// Only names the measures to take. Empty: all.
	Only []string

	// ServerMessages returns how many messages the server has received from all clients. Nil:
	// the server cannot be asked.
	ServerMessages func(ctx context.Context) (int64, error)

	// Progress is called with the current step, Result with each result.
	Progress func(doing string)
	Result   func(Result) error
}

// If Config.Slots is zero, Run uses at least minSlots slots, and at most DefaultSlots, which is enough
// for a fast server.
const (
	DefaultSlots = 20_000
	minSlots     = 1000
)

// Measures that Run can take.
const (
	Publish   = "publish"
	Drain     = "drain"
	DrainSkip = "drain-skip"
	Due       = "burst"
	Late      = "lateness"
	Cost      = "cost"
)

// Measures returns the names of all measures, in the order in which Run takes them.
func Measures() []string { return []string{Publish, Drain, DrainSkip, Due, Late, Cost} }

// Result compares a figure of the fleet with the same operations by hand. Ratio is 1 if they
// are equal, and less if the fleet is worse.
type Result struct {
	Measure   string  `json:"measure"`
	Ratio     float64 `json:"ratio"`
	Ours      float64 `json:"ours"`
	Ceiling   float64 `json:"ceiling"`
	Unit      string  `json:"unit"`
	Slots     int     `json:"slots"`
	Producers int     `json:"producers,omitempty"`
	Replicas  int     `json:"replicas"`

	// For publish: how many messages the producers sent for each slot, announcements included.
	// 1 is the least.
	Sent float64 `json:"sent_per_slot,omitempty"`

	// For burst: how long after the slots' instant the last slot was stored, and how long it takes by
	// hand to publish and drain as many slots concurrently. The ceiling is a drain alone.
	Published float64 `json:"published_ms,omitempty"`
	AtOnce    float64 `json:"at_once_ms,omitempty"`

	// For cost: how many messages the server received for each slot, if it could be asked, and how
	// many the fleet sends in a second in which nothing is due.
	Server float64 `json:"server_per_slot,omitempty"`
	Idle   float64 `json:"idle_per_second,omitempty"`
}

// faster compares two rates. The larger one is better.
func faster(measure string, ours, ceiling Rate) Result {
	return Result{Measure: measure, Ratio: ours.PerSecond() / ceiling.PerSecond(), Ours: ours.PerSecond(), Ceiling: ceiling.PerSecond(), Unit: "slots/s", Slots: ours.Slots}
}

// less compares two values of which the smaller one is better.
func less(measure, unit string, ours, ceiling float64, slots int) Result {
	return Result{Measure: measure, Ratio: ceiling / ours, Ours: ours, Ceiling: ceiling, Unit: unit, Slots: slots}
}

// Run takes one measure after the other. For each measure it measures the fleet and the ceiling in
// turn. It removes what it created, even if it fails, and reports what it could not remove.
func Run(ctx context.Context, cfg Config) error {
	r := run{Config: cfg}
	if err := r.begin(ctx); err != nil {
		return err
	}
	for _, step := range []struct {
		measures []string
		do       func(context.Context) error
	}{
		{[]string{Publish}, r.publish},
		{[]string{Drain}, func(ctx context.Context) error { return r.drain(ctx, Drain, job.OverlapAllow, min(r.Slots, fewJobs)) }},
		{[]string{DrainSkip}, func(ctx context.Context) error {
			return r.drain(ctx, DrainSkip, job.OverlapSkip, max(1, r.Slots/slotsEach))
		}},
		{[]string{Due}, r.burst},
		{[]string{Late, Cost}, r.steady},
	} {
		if !slices.ContainsFunc(step.measures, r.wants) {
			continue
		}
		if err := step.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

type run struct {
	Config
	ceiling Rate // of a drain; zero: not measured yet
	named   int  // how many names the method name has returned

	atomicBatches bool // the server supports them
}

func (r *run) wants(measure string) bool { return len(r.Only) == 0 || slices.Contains(r.Only, measure) }

// begin checks that no stream has the prefix of the namespace. It creates a namespace to find out
// how many replicas the server gives a stream and whether it supports atomic batches, and removes
// it. If Slots is zero, begin also measures how many slots to use.
func (r *run) begin(ctx context.Context) (err error) {
	r.Progress("checking the server")
	js, err := r.Connect(ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		if strings.HasPrefix(strings.TrimPrefix(name, "KV_"), r.Namespace+"_") {
			err = fmt.Errorf("stream %s exists: the namespace %q is in use, or a killed bench left it (nats stream rm %s)", name, r.Namespace, name)
		}
	}
	if err = errors.Join(err, names.Err()); err != nil {
		return err
	}
	probe := r.name("probe")
	defer func() { err = errors.Join(err, remove(ctx, js, probe)) }()
	store, err := open(ctx, js, probe, r.Replicas)
	if err != nil {
		return err
	}
	r.Replicas, r.atomicBatches = store.Settings().Replicas, store.Schedules()
	if r.Slots == 0 {
		rate, err := PublishCeiling(ctx, r.Connect, r.name("hand"), r.Replicas, minSlots, Shape{})
		if err != nil {
			return err
		}
		r.Slots = min(DefaultSlots, max(minSlots, int(rate.PerSecond())))
	}
	return nil
}

// name returns a new name at each call, for the namespace of one measurement. If a name were used
// again while the server still removes its streams, the new streams could not be created, or would
// have old messages.
func (r *run) name(of string) string {
	r.named++
	return fmt.Sprintf("%s_%s%d", r.Namespace, of, r.named)
}

func (r *run) result(res Result) error {
	res.Replicas = r.Replicas
	return r.Result(res)
}

// turns is how often the fleet and the ceiling are measured for publish. The best of each
// counts, because a disturbance only makes a measurement slower.
const turns = 2

func (r *run) publish(ctx context.Context) error {
	var ours Published
	var ceiling Rate
	for turn := range turns {
		r.Progress(fmt.Sprintf("publish: %d slots by hand, turn %d of %d", r.Slots, turn+1, turns))
		for _, together := range []bool{false, true} {
			if together && !r.atomicBatches {
				continue
			}
			rate, err := PublishCeiling(ctx, r.Connect, r.name("hand"), r.Replicas, r.Slots, Shape{Together: together})
			if err != nil {
				return err
			}
			ceiling = best(ceiling, rate)
		}
		r.Progress(fmt.Sprintf("publish: %d slots due in one second, producers: %d, turn %d of %d", r.Slots, r.Producers, turn+1, turns))
		p, err := PublishDue(ctx, r.Connect, r.name("publish"), r.Replicas, r.Slots, r.Producers)
		if err != nil {
			return err
		}
		if ours.Took == 0 || p.Took < ours.Took {
			ours = p
		}
	}
	res := faster(Publish, ours.Rate, ceiling)
	res.Producers, res.Sent = r.Producers, ours.Sent
	return r.result(res)
}

func best(a, b Rate) Rate {
	if a.Took == 0 || b.Took < a.Took {
		return b
	}
	return a
}

// Drain has fewJobs jobs. DrainSkip has so many jobs that each has slotsEach slots: the slots of a
// job are so far apart that each finds its predecessor done. With a few hundred to two thousand jobs
// a drain would measure the server, which searches all jobs for each message (docs/scale.md).
const (
	fewJobs   = 10
	slotsEach = 4
)

func (r *run) drain(ctx context.Context, measure string, overlap job.Overlap, jobs int) error {
	var ours Rate
	err := r.besideDrains(ctx, fmt.Sprintf("%s: %d slots of %d jobs, one worker", measure, r.Slots, jobs), func(Shape) error {
		rate, err := DrainOurs(ctx, r.Connect, r.name("drain"), r.Replicas, r.Slots, jobs, overlap)
		if err == nil {
			ours = best(ours, rate)
		}
		return err
	})
	if err != nil {
		return err
	}
	return r.result(faster(measure, ours, r.ceiling))
}

// besideDrains calls ours, which measures the fleet, once for each shape. Before each call it drains
// by hand in that shape, unless the ceiling is known. The best of these drains is the ceiling.
func (r *run) besideDrains(ctx context.Context, what string, ours func(Shape) error) error {
	ceiling, known := r.ceiling, r.ceiling.Took > 0
	shapes := Shapes(r.atomicBatches)
	for turn, shape := range shapes {
		if !known {
			r.Progress(fmt.Sprintf("drain: %d slots by hand, %v", r.Slots, shape))
			rate, err := DrainCeiling(ctx, r.Connect, r.name("hand"), r.Replicas, r.Slots, shape)
			if err != nil {
				return err
			}
			ceiling = best(ceiling, rate)
		}
		r.Progress(fmt.Sprintf("%s, turn %d of %d", what, turn+1, len(shapes)))
		if err := ours(shape); err != nil {
			return err
		}
	}
	r.ceiling = ceiling
	return nil
}

func (r *run) steady(ctx context.Context) error {
	r.Progress(fmt.Sprintf("lateness and cost: %d slots a second by hand, for %ds", r.Jobs, r.Seconds))
	hand, err := SteadyCeiling(ctx, r.Connect, r.name("hand"), r.Replicas, r.Jobs, r.Seconds)
	if err != nil {
		return err
	}
	r.Progress(fmt.Sprintf("lateness and cost: %d slots a second, producers: %d, for %ds", r.Jobs, r.Producers, r.Seconds))
	ours, err := MeasureSteady(ctx, r.Connect, r.ServerMessages, r.name("steady"), r.Replicas, r.Jobs, r.Producers, r.Seconds)
	if err != nil {
		return err
	}
	slots := len(ours.Late)
	var results []Result
	if r.wants(Late) {
		for _, q := range []struct {
			name string
			at   float64
		}{{"_p50", 0.5}, {"_p99", 0.99}} {
			results = append(results, less(Late+q.name, "ms", ms(ours.Late.At(q.at)), ms(hand.Late.At(q.at)), slots))
		}
	}
	if r.wants(Cost) {
		cost := less(Cost, "messages/slot", ours.Sent, hand.Sent, slots)
		cost.Server, cost.Idle = ours.Server, ours.Idle
		results = append(results, cost)
	}
	for _, res := range results {
		res.Producers = r.Producers
		if err := r.result(res); err != nil {
			return err
		}
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// removeTimeout bounds the removal of streams if the server does not answer.
const removeTimeout = 15 * time.Second

// remove removes a namespace, even when ctx has ended.
func remove(ctx context.Context, js jetstream.JetStream, namespace string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	if err := space.Remove(ctx, js, namespace); err != nil {
		return fmt.Errorf("namespace %s is left behind: %w", namespace, err)
	}
	return nil
}

func open(ctx context.Context, js jetstream.JetStream, namespace string, replicas int) (*kv.Store, error) {
	return kv.Open(ctx, js, kv.Options{Namespace: namespace, Want: job.Settings{Replicas: replicas}})
}
