package base

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"sync/atomic"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/text/suggest"
	"github.com/cronce-io/cronce/job"
)

// Client returns a client that acts in the name of the user of the command.
func (r Reader) Client() *client.Client {
	return client.Attach(attach.Of(r.js.Conn(), r.Store, attach.Options{Operator: r.Operator(), Alive: r.Alive, Now: r.App.Now, Logger: r.Log}))
}

// Telling returns a function that a long operation calls after each answer of the broker.
// It logs every 3 s that the operation still runs.
func (r Reader) Telling(what string) (alive func()) {
	const every = 3 * time.Second
	var answers, spoken atomic.Int64
	began := time.Now()
	spoken.Store(began.UnixNano())
	return func() {
		r.Alive()
		n, now, last := answers.Add(1), time.Now(), spoken.Load()
		if now.UnixNano()-last > int64(every) && spoken.CompareAndSwap(last, now.UnixNano()) {
			r.Log.Info(what, "answers", n, "for", now.Sub(began).Round(time.Second).String())
		}
	}
}

// Patient keeps the command from ending while the server is away, until stop is called. It logs
// every 30 s that the command still waits, unless what is empty.
func (r Reader) Patient(what string, attributes ...any) (stop func()) {
	const every = 30 * time.Second
	done, began := make(chan struct{}), time.Now()
	go func() {
		alive := time.NewTicker(ReadPatience / 3)
		defer alive.Stop()
		say := time.NewTicker(every)
		defer say.Stop()
		for {
			select {
			case <-done:
				return
			case <-alive.C:
				r.Alive()
			case <-say.C:
				if what == "" {
					continue
				}
				r.Log.Info(what, append(attributes, "for", time.Since(began).Round(time.Second).String())...)
			}
		}
	}()
	return func() { close(done) }
}

// Operator is the name of the user in records and events, like alice@laptop.
func (a *App) Operator() string {
	name := a.Getenv("USER")
	if u, err := user.Current(); err == nil && name == "" {
		name = u.Username
	}
	name = cmp.Or(name, "unknown")
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}

// OnJob validates the job's name, opens the namespace and calls f.
func (a *App) OnJob(ctx context.Context, as, name string, f func(context.Context, Reader, string) error) error {
	if err := codec.ValidateName("job", name); err != nil {
		return Usage(err)
	}
	return a.Read(ctx, as, func(ctx context.Context, r Reader) error {
		return r.OfJob(ctx, name, f(ctx, r, name))
	})
}

// OfJob adds the next step to an error of an operation on one job.
func (r Reader) OfJob(ctx context.Context, name string, err error) error {
	var conflict *client.ConflictError
	var broken *plans.EntryError
	switch {
	case errors.As(err, &broken):
		return Try(OneLine(err), "cronce job apply, or cronce job rm "+name)
	case errors.As(err, &conflict) && !conflict.Removed:
		return Try(err, "cronce job show "+name+", then the same command again")
	case errors.As(err, &conflict):
		return Try(err, "the same command again")
	case errors.Is(err, job.ErrNotFound):
		return r.NoSuchJob(ctx, name)
	case errors.Is(err, job.ErrDenied):
		return Denied(err)
	case errors.Is(err, job.ErrUnknown):
		return Try(err, "the same command again, which settles it")
	}
	return err
}

// NoSuchJob is the error for an unknown job. It suggests a similar name.
func (r Reader) NoSuchJob(ctx context.Context, name string) error {
	var names []string
	entries, err := r.Jobs().List(ctx)
	if err != nil && !r.Unreadable(err) {
		return err
	}
	for _, e := range entries {
		names = append(names, e.Job.Name)
	}
	hint := "cronce job ls"
	if near := suggest.Nearest(name, names); near != "" {
		hint = near
	}
	return Try(fmt.Errorf("no job named %s: %w", name, job.ErrNotFound), hint)
}

// Denied adds the next step to a permission error.
func Denied(err error) error { return Try(err, "--creds or --context with the permission") }
