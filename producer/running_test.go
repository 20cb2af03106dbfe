package producer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// running is a producer in its own goroutine.
type running struct {
	*Producer
	*view
	cancel context.CancelFunc
	done   chan error
}

func (b *broker) start(edit ...func(*Config, *view)) *running {
	v := &view{broker: b}
	cfg := Config{Node: "n", Registry: v, Watermark: v, Slots: v, Clock: v, Reconnects: v.Reconnects}
	for _, f := range edit {
		f(&cfg, v)
	}
	p, err := New(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	r := &running{p, v, cancel, make(chan error, 1)}
	go func() { r.done <- p.Run(ctx) }()
	return r
}

// member starts a producer that shares the work. Its name shows its age.
func (b *broker) member(edit ...func(*Config, *view)) *running {
	b.mu.Lock()
	b.born++
	name := fmt.Sprintf("n%03d", b.born)
	b.mu.Unlock()
	return b.start(append([]func(*Config, *view){func(c *Config, v *view) {
		c.Node, c.Peers, c.Started = name, v, time.Now()
	}}, edit...)...)
}

// die stops the producer without a last announcement.
func (r *running) die() {
	r.view.mu.Lock()
	r.mute = true
	r.view.mu.Unlock()
	r.stop()
}

// stop equals a kill, as far as the broker can tell: nothing is flushed.
func (r *running) stop() {
	r.cancel()
	if err := <-r.done; err != nil {
		r.t.Errorf("Run = %v, want nil after its context has ended", err)
	}
}

// advance lets time pass; everything in the bubble is idle when it returns.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func every(name, schedule string, policy job.CatchUpPolicy) job.Job {
	return job.Job{Name: name, Schedule: schedule, CatchUp: job.CatchUp{Policy: policy}}
}

// slots returns the IDs of a job's slots after one instant, up to and including another.
func slots(t testing.TB, def job.Job, after, until time.Time) []string {
	t.Helper()
	s, err := job.ParseSchedule(def.Name, def.Plan())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for at := range s.Between(after, until) {
		ids = append(ids, job.NewSlot(def.Name, at).ID())
	}
	return ids
}

// wantAll fails unless exactly the given slots of the job are stored, all to run.
func (b *broker) wantAll(name string, ids []string) {
	b.t.Helper()
	want := map[string]string{}
	for _, id := range ids {
		want[id] = "run"
	}
	b.want(name, want)
}

func (b *broker) want(name string, want map[string]string) {
	b.t.Helper()
	has := b.has(name)
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if has[id] != want[id] {
			b.t.Errorf("%s is %q, want %q", id, has[id], want[id])
		}
		delete(has, id)
	}
	for _, id := range slices.Sorted(maps.Keys(has)) {
		b.t.Errorf("%s is %q, want nothing", id, has[id])
	}
}

type brokenRegistry struct{ err error }

func (r brokenRegistry) Watch(context.Context, func(plans.RegistryEvent)) error { return r.err }
