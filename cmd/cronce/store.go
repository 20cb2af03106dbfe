package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/tracing"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// How long a command waits for a broker that says nothing. The packages below
// wait as long as they are let; a person at a terminal does not. A cluster that
// is to create streams may have leaders to elect first.
const (
	readPatience  = 15 * time.Second
	setupPatience = time.Minute
)

// reader is a command that looks at what is on the broker, and sets nothing up.
type reader struct {
	*app
	*kv.Store
	js jetstream.JetStream

	// alive is called whenever the broker has answered: patience begins anew.
	alive func()
}

// read opens the namespace and hands it to f. ctx ends when the broker is silent
// for readPatience.
func (a *app) read(ctx context.Context, as string, f func(ctx context.Context, r reader) error) error {
	return a.open(ctx, as, nil, f)
}

// publish is read for a command that publishes slots: those are traced, if the
// environment asks for it, and ctx is in the trace that it names. What it asks for and
// cannot be had ends no command that would do without.
func (a *app) publish(ctx context.Context, as string, f func(ctx context.Context, r reader) error) error {
	provider, flush, err := a.tracing(ctx)
	if err != nil {
		a.log.Warn("nothing of this is traced", "error", err)
		return a.read(ctx, as, f)
	}
	defer flush()
	if provider != nil {
		ctx = tracing.Continue(ctx, map[string][]string{job.HeaderTraceparent: {a.getenv("TRACEPARENT")}})
	}
	return a.open(ctx, as, tracing.New(provider, a.namespace, version()), f)
}

func (a *app) open(ctx context.Context, as string, tracer *tracing.Tracer, f func(ctx context.Context, r reader) error) error {
	return a.withJetStream(ctx, as, readPatience, func(ctx context.Context, js jetstream.JetStream, alive func()) error {
		store, err := kv.Open(ctx, js, kv.Options{Namespace: a.namespace, ReadOnly: true, Logger: a.log, Trace: tracer.Publish})
		if err != nil {
			return err
		}
		alive()
		return f(ctx, reader{a, store, js, alive})
	})
}

func (a *app) withJetStream(ctx context.Context, as string, patience time.Duration, f func(ctx context.Context, js jetstream.JetStream, alive func()) error) error {
	nc, leave, err := a.connect(ctx, as, false)
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
		return try(err, "cronce doctor, which says what mends it")
	case errors.Is(err, job.ErrDenied) && !errors.As(err, &hinted):
		return denied(err)
	}
	var value *kv.UnreadableError
	if errors.As(err, &value) && !errors.As(err, &hinted) {
		return try(err, "cronce doctor --remove-unreadable")
	}
	return err
}

// unreadable reports whether err is about one stored value only, which the
// command then tells and leaves out: the rest is still worth seeing.
func (r reader) unreadable(err error) bool {
	if errors.Is(err, job.ErrVersion) || errors.Is(err, job.ErrInvalid) {
		r.log.Warn("left out what cannot be read", "error", oneLine(err))
		return true
	}
	return false
}

// leftOut warns of what a listing could not read, as far as a screen goes.
func (r reader) leftOut(unreadable []error) {
	for _, err := range unreadable[:min(len(unreadable), mostNamed)] {
		r.unreadable(err)
	}
	if more := len(unreadable) - mostNamed; more > 0 {
		r.log.Warn("left out more that cannot be read", "count", more)
	}
}
