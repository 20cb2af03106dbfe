package replica

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/job"
)

const (
	// setupInterval is the pause between two tries to set the namespace up.
	setupInterval = 2 * time.Second

	// settingsInterval is the interval of checks of the stored settings.
	settingsInterval = time.Minute
)

// isGone reports whether err means that the namespace, or a part of it, does not exist.
func isGone(err error) bool {
	return errors.Is(err, wire.ErrGone) || errors.Is(err, jetstream.ErrStreamNotFound)
}

// setUpAgain returns when the namespace is complete. It creates what is missing, or waits
// for another login to do so. If the registry is a new one, it applies the jobs of this
// process to it. It returns false if ctx ends first.
func (r *Replica) setUpAgain(ctx context.Context) bool {
	select {
	case r.settingUp <- struct{}{}:
		defer func() { <-r.settingUp }()
	case <-ctx.Done():
		return false
	}
	logged := ""
	for ctx.Err() == nil {
		changes, created, err := r.cfg.Store.SetUpAgain(ctx)
		if len(changes) > 0 {
			what := strings.Join(changes, ", ")
			r.log.Error("the namespace, or a part of it, was gone: it is set up again, and what was stored there is lost", "namespace", r.cfg.Store.Namespace, "changes", what)
			r.emit(job.Event{Kind: job.EventAlert, Node: r.Stats().Node, Error: "the namespace, or a part of it, was gone and is set up again: " + what})
		}
		if err == nil && !created.Equal(r.registryCreated) {
			err = r.applyOwn(ctx)
		}
		if err == nil {
			r.registryCreated = created
			return true
		}
		if text := err.Error(); text != logged && ctx.Err() == nil {
			logged = text
			fix := r.cfg.Store.SetupCommand()
			if errors.Is(err, job.ErrDenied) {
				fix += ", with a login that may (cronce auth setup)"
			}
			r.log.Error("waiting for the namespace to be set up again", "fix", fix, "error", err)
		}
		wire.Wait(ctx, setupInterval)
	}
	return false
}

// applyOwn applies the jobs of this process to the registry, at the start or to a new registry. It leaves
// out the jobs that applyAdded has yet to apply: if the registry refuses one of them, the replica goes on.
func (r *Replica) applyOwn(ctx context.Context) error {
	return (&applying{Replica: r}).run(ctx, r.own.list(func(j ownJob) bool { return !j.waits() }))
}

// keepWatching runs watch. If watch fails because the namespace is gone, keepWatching sets the
// namespace up again and restarts watch.
func (r *Replica) keepWatching(ctx context.Context, watch func(context.Context) error) error {
	for {
		err := watch(ctx)
		if ctx.Err() != nil || !isGone(err) {
			return err
		}
		r.log.Warn("watch ended: it restarts when the namespace is set up again", "error", err)
		if !r.setUpAgain(ctx) {
			return nil
		}
	}
}

// watchRegistry feeds the view in a process without a producer.
func (r *Replica) watchRegistry(ctx context.Context) error {
	first := true
	return r.keepWatching(ctx, func(ctx context.Context) error {
		if !first {
			r.view.Restart()
			if err := r.applyOwn(ctx); err != nil {
				return err
			}
		}
		first = false
		return r.cfg.Store.Jobs().Watch(ctx, r.noteRegistry)
	})
}

// watchSettings compares the stored settings with those of this process. If none are stored,
// it stores its own again. If they differ, it logs that and keeps its own: nodes with different
// leases work together, but a process must not change its lease while a slot runs.
func (r *Replica) watchSettings(ctx context.Context) {
	logged := ""
	for wire.Wait(ctx, settingsInterval) {
		stored, ours, err := r.cfg.Store.CompareSettings(ctx)
		text := strings.Join(stored, ", ")
		switch {
		case isGone(err):
			r.setUpAgain(ctx)
		case err != nil && ctx.Err() == nil:
			r.log.Warn("cannot read the stored settings: this node goes on with its own", "error", err)
		case text != logged && text != "":
			r.log.Error("the stored settings differ from those of this node: it goes on with its own until it is restarted",
				"stored", text, "this_node", strings.Join(ours, ", "), "fix", "restart it, or change them back: cronce setup")
		}
		if err == nil {
			logged = text
		}
	}
}
