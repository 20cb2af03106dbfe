package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"sync/atomic"
	"time"

	"github.com/cronce-io/cronce/internal/api"
	"github.com/cronce-io/cronce/internal/control"
	"github.com/cronce-io/cronce/internal/suggest"
	"github.com/cronce-io/cronce/job"
)

// control gives orders in the name of who runs the command.
func (r reader) control() *control.Control {
	return api.Control(r.Store, r.who(), r.app.now, r.log, r.alive)
}

// telling is what a long operation calls with each answer of the broker: now and
// then it is said that it still works.
func (r reader) telling(what string) (alive func()) {
	const every = 3 * time.Second
	var answers, spoken atomic.Int64
	began := time.Now()
	spoken.Store(began.UnixNano())
	return func() {
		r.alive()
		n, now, last := answers.Add(1), time.Now(), spoken.Load()
		if now.UnixNano()-last > int64(every) && spoken.CompareAndSwap(last, now.UnixNano()) {
			r.log.Info(what, "answers", n, "for", now.Sub(began).Round(time.Second).String())
		}
	}
}

// who is the person at the keyboard, as others will read it: alice@laptop.
func (a *app) who() string {
	name := a.getenv("USER")
	if u, err := user.Current(); err == nil && name == "" {
		name = u.Username
	}
	if name == "" {
		name = "somebody"
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}

// onJob hands f the namespace and a job's name that may be one: a name that cannot
// be is refused before anything is asked.
func (a *app) onJob(ctx context.Context, as, name string, f func(reader, context.Context, string) error) error {
	if err := job.ValidateName("job", name); err != nil {
		return usage(err)
	}
	return a.read(ctx, as, func(ctx context.Context, r reader) error {
		return r.ofJob(ctx, name, f(r, ctx, name))
	})
}

// ofJob adds to an error of an operation on one job what to do next.
func (r reader) ofJob(ctx context.Context, name string, err error) error {
	var conflict *control.ConflictError
	var broken *job.EntryError
	switch {
	case errors.As(err, &broken):
		return try(oneLine(err), "cronce job apply, or cronce job rm "+name)
	case errors.As(err, &conflict) && !conflict.Removed:
		return try(err, "cronce job show "+name+", and then the same again")
	case errors.As(err, &conflict):
		return try(err, "the same again")
	case errors.Is(err, job.ErrNotFound):
		return r.noSuchJob(ctx, name)
	case errors.Is(err, job.ErrDenied):
		return denied(err)
	case errors.Is(err, job.ErrUnknown):
		return try(err, "the same again, which settles it")
	}
	return err
}

func (r reader) noSuchJob(ctx context.Context, name string) error {
	var names []string
	entries, err := r.Jobs().List(ctx)
	if err != nil && !r.unreadable(err) {
		return err
	}
	for _, e := range entries {
		names = append(names, e.Job.Name)
	}
	hint := "cronce job ls"
	if near := suggest.Nearest(name, names); near != "" {
		hint = near
	}
	return try(fmt.Errorf("no job named %s: %w", name, job.ErrNotFound), hint)
}

func denied(err error) error { return try(err, "--creds or --context of somebody who may") }
