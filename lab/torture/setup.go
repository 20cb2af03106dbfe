package torture

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/fleet/boot"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
	"github.com/cronce-io/cronce/lab/torture/plan"
)

// open starts the servers, connects, and creates the namespace.
func (t *torture) open(ctx context.Context) error {
	if t.cfg.Servers > 0 {
		if err := t.startBrokers(); err != nil {
			return err
		}
	}
	servers := []string{""}
	if t.cfg.Servers > 0 {
		servers = strings.Split(t.cfg.Server, ",")
	}
	for _, server := range servers {
		nc, err := t.connect(ctx, server)
		if err != nil {
			return err
		}
		t.conns = append(t.conns, nc)
	}
	var err error
	if t.nc, err = t.connect(ctx, t.cfg.Server); err != nil {
		return err
	}
	if t.js, err = jetstream.New(t.nc); err != nil {
		return err
	}
	if err := t.refuseExisting(ctx); err != nil {
		return err
	}
	t.removes = t.cfg.Servers == 0
	return t.setUp(ctx)
}

// connect connects to a server. If torture started the server, connect waits until it is up.
func (t *torture) connect(ctx context.Context, server string) (*nats.Conn, error) {
	if t.cfg.Servers == 0 {
		return t.cfg.Connect(ctx)
	}
	for began := time.Now(); ; {
		// Reconnect quickly: the witness misses what the server republishes while it is disconnected.
		nc, err := nats.Connect(server, nats.Name("cronce torture"), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))
		if err == nil || time.Since(began) > time.Minute {
			return nc, err
		}
		if !wire.Wait(ctx, 100*time.Millisecond) {
			return nil, context.Cause(ctx)
		}
	}
}

// refuseExisting fails if the namespace exists: it may be in use.
func (t *torture) refuseExisting(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, stream := range layout.Streams(t.cfg.Namespace) {
		for {
			attempt, cancel := context.WithTimeout(ctx, 3*time.Second)
			_, err := t.js.Stream(attempt, stream)
			cancel()
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				break
			}
			if err == nil {
				return fmt.Errorf("namespace %q exists (it has the stream %s), but torture must create its namespace itself: choose another name, or none", t.cfg.Namespace, stream)
			}
			if ctx.Err() != nil || t.cfg.Servers == 0 {
				return fmt.Errorf("look for stream %s: %w", stream, err)
			}
			wire.Wait(ctx, 100*time.Millisecond) // the cluster has no leader yet
		}
	}
	return nil
}

func (t *torture) setUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	want := job.Settings{Lease: t.cfg.Lease, Replicas: t.cfg.Servers}
	for {
		_, err := space.Setup(ctx, t.js, kv.Options{Namespace: t.cfg.Namespace, Want: want, Logger: t.cfg.Logger})
		if err == nil {
			break
		}
		// A cluster that has just started does not know all its servers yet.
		if t.cfg.Servers < 2 || !wire.Wait(ctx, 300*time.Millisecond) {
			return err
		}
	}
	var err error
	if t.store, err = kv.Open(ctx, t.js, kv.Options{Namespace: t.cfg.Namespace, Logger: t.cfg.Logger}); err != nil {
		return err
	}
	if err := republish(ctx, t.js, t.cfg.Namespace); err != nil {
		return err
	}
	for _, nc := range t.conns {
		if err := t.witness.listen(nc); err != nil {
			return err
		}
	}
	return nil
}

// define writes the jobs to the registry. The bounds of their slots are those of the torture, so
// it is known exactly which slots must exist.
func (t *torture) define(ctx context.Context) error {
	for range 5 {
		if err := askTime(ctx, t.nc, t.cfg.Namespace+"_slots", &t.clock); err != nil {
			return err
		}
	}
	now, _ := t.clock.At(boot.Now())
	const early = 4 * time.Second // enough to write the definitions and start the fleet
	t.from = now.Add(early).Truncate(time.Second)
	t.fromBoot, _ = t.clock.Boot(t.from)
	t.until = t.from.Add(t.cfg.Duration).Truncate(time.Second)
	t.cases = plan.Bounded(t.cfg.Lease, t.from, t.until)
	for i := range t.cases {
		j := &t.cases[i].Job
		d, _, err := plans.Upsert(nil, *j, plan.JobOwner, "torture", false)
		if err != nil {
			return err
		}
		d.Nonce = fmt.Sprintf("torture#%d", i)
		if _, err := t.store.Jobs().Write(ctx, d, 0); err != nil {
			return fmt.Errorf("define job %s: %w", j.Name, err)
		}
	}
	return nil
}

func (t *torture) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := space.Remove(ctx, t.js, t.cfg.Namespace); err != nil {
		t.cfg.Logger.Error("namespace not removed; remove its streams by hand (nats stream rm)", "namespace", t.cfg.Namespace, "error", err)
	}
}
