package base

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/tracing"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// How long a command waits for a broker that says nothing. The packages below
// wait as long as they are let; a person at a terminal does not. A cluster that
// is to create streams may have leaders to elect first.
const (
	ReadPatience  = 15 * time.Second
	SetupPatience = time.Minute
)

// Reader is a command that looks at what is on the broker, and sets nothing up.
type Reader struct {
	*App
	*kv.Store
	js jetstream.JetStream

	// Alive is called whenever the broker has answered: patience begins anew.
	Alive func()
}

// Read opens the namespace and hands it to f. ctx ends when the broker is silent
// for ReadPatience.
func (a *App) Read(ctx context.Context, as string, f func(ctx context.Context, r Reader) error) error {
	return a.open(ctx, as, nil, f)
}

// Publish is Read for a command that publishes slots: those are traced, if the
// environment asks for it, and ctx is in the trace that it names. What it asks for and
// cannot be had ends no command that would do without.
func (a *App) Publish(ctx context.Context, as string, f func(ctx context.Context, r Reader) error) error {
	provider, flush, err := a.Tracing(ctx)
	if err != nil {
		a.Log.Warn("nothing of this is traced", "error", err)
		return a.Read(ctx, as, f)
	}
	defer flush()
	if provider != nil {
		ctx = tracing.Continue(ctx, map[string][]string{core.HeaderTraceparent: {a.Getenv("TRACEPARENT")}})
	}
	return a.open(ctx, as, tracing.New(provider, a.Namespace, Version()), f)
}

func (a *App) open(ctx context.Context, as string, tracer *tracing.Tracer, f func(ctx context.Context, r Reader) error) error {
	return a.WithJetStream(ctx, as, ReadPatience, func(ctx context.Context, js jetstream.JetStream, alive func()) error {
		store, err := kv.Open(ctx, js, kv.Options{Namespace: a.Namespace, ReadOnly: true, Logger: a.Log, Trace: tracer.Publish})
		if err != nil {
			return err
		}
		alive()
		return f(ctx, Reader{a, store, js, alive})
	})
}

func (a *App) WithJetStream(ctx context.Context, as string, patience time.Duration, f func(ctx context.Context, js jetstream.JetStream, alive func()) error) error {
	nc, leave, err := a.Connect(ctx, as, false)
	if err != nil {
		return err
	}
	defer leave()
	js, err := nc.JetStream()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(patience, func() {
		cancel(fmt.Errorf("the NATS server has not answered for %v", patience))
	})
	defer timer.Stop()
	err = f(ctx, js, func() { timer.Reset(patience) })
	var hinted *hintError
	switch {
	case errors.Is(err, job.ErrFull):
		return Try(err, "cronce doctor, which says what mends it")
	case errors.Is(err, job.ErrDenied) && !errors.As(err, &hinted):
		return Denied(err)
	}
	var value *kv.UnreadableError
	if errors.As(err, &value) && !errors.As(err, &hinted) {
		return Try(err, "cronce doctor --remove-unreadable")
	}
	return err
}

// Unreadable reports whether err is about one stored value only, which the
// command then tells and leaves out: the rest is still worth seeing.
func (r Reader) Unreadable(err error) bool {
	if errors.Is(err, job.ErrVersion) || errors.Is(err, job.ErrInvalid) {
		r.Log.Warn("left out what cannot be read", "error", OneLine(err))
		return true
	}
	return false
}

// LeftOut warns of what a listing could not read, as far as a screen goes.
func (r Reader) LeftOut(unreadable []error) {
	for _, err := range unreadable[:min(len(unreadable), MostNamed)] {
		r.Unreadable(err)
	}
	if more := len(unreadable) - MostNamed; more > 0 {
		r.Log.Warn("left out more that cannot be read", "count", more)
	}
}
