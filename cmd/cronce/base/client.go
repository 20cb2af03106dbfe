package base

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/text/suggest"
	"github.com/cronce-io/cronce/job"
)

// Client returns a client whose operator is the user of the command.
func (r Session) Client() *client.Client {
	return client.Attach(attach.Of(r.js.Conn(), r.Store, attach.Options{Operator: r.Operator(), Alive: r.Alive, Now: r.App.Now, Logger: r.Log}))
}

// LogProgress makes Alive log that a long operation still runs, at most every 3 s.
func (r *Session) LogProgress(message string) {
	const every = 3 * time.Second
	var answers, logged atomic.Int64
	alive, began := r.Alive, time.Now()
	logged.Store(began.UnixNano())
	r.Alive = func() {
		alive()
		n, now, last := answers.Add(1), time.Now(), logged.Load()
		if now.UnixNano()-last > int64(every) && logged.CompareAndSwap(last, now.UnixNano()) {
			r.Log.Info(message, "answers", n, "for", now.Sub(began).Round(time.Second).String())
		}
	}
}

// KeepWaiting lets the command outlast a server that does not answer, until stop is called.
// It logs the message every 30 s, unless that is empty.
func (r Session) KeepWaiting(message string, attributes ...any) (stop func()) {
	const every = 30 * time.Second
	done, began := make(chan struct{}), time.Now()
	go func() {
		alive := time.NewTicker(ReadPatience / 3)
		defer alive.Stop()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-alive.C:
				r.Alive()
			case <-tick.C:
				if message != "" {
					r.Log.Info(message, append(attributes, "for", time.Since(began).Round(time.Second).String())...)
				}
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

// OnJob validates the job's name, opens the namespace and calls f with the name. It adds the
// next step to the error of f.
func (a *App) OnJob(ctx context.Context, as, name string, f func(context.Context, Session, string) error) error {
	if err := codec.ValidateName("job", name); err != nil {
		return Usage(err)
	}
	return a.Open(ctx, as, func(ctx context.Context, r Session) error {
		return r.JobError(ctx, name, f(ctx, r, name))
	})
}

// JobError adds the next step to an error of an operation on one job.
func (r Session) JobError(ctx context.Context, name string, err error) error {
	var conflict *client.ConflictError
	var broken *plans.EntryError
	switch {
	case errors.As(err, &broken):
		return Try(OneLine(err), "cronce job apply -f FILE, or cronce job rm "+name)
	case errors.As(err, &conflict) && !conflict.Removed:
		return Try(err, "cronce job show "+name+", then the same command again")
	case errors.As(err, &conflict):
		return Try(err, "the same command again")
	case errors.Is(err, job.ErrNotFound):
		return r.NoSuchJob(ctx, name)
	}
	return Unsettled(err)
}

// Unsettled adds the next step to the error of a write that was not answered.
func Unsettled(err error) error {
	if errors.Is(err, job.ErrUnknown) && !errors.Is(err, job.ErrDenied) {
		return Try(err, "the same command again, which settles it")
	}
	return err
}

// NoSuchJob is the error for an unknown job. It suggests a similar name.
func (r Session) NoSuchJob(ctx context.Context, name string) error {
	var names []string
	entries, err := r.Jobs().List(ctx)
	if err != nil && !r.SkipUnreadable(err) {
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

// denied adds the next step to a permission error. Each role of cronce auth may describe the streams of
// its namespace. So a login that may not may have an account, and a domain, of its own.
func denied(err error) error {
	hint := "--creds or --context with the permission"
	if strings.Contains(err.Error(), ".API.STREAM.INFO.") {
		hint += ", or --js-domain with the domain of the streams, such as fleet with the accounts of cronce auth"
	}
	return Try(err, hint)
}
