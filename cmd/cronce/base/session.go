package base

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/internal/natsconn/connect"
	"github.com/cronce-io/cronce/internal/natsconn/embed"
	"github.com/cronce-io/cronce/internal/tracing"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// How long a command waits for a broker that does not answer. The packages that commands call
// have no limit of their own; a user at a terminal needs one. Setup waits longer because a
// cluster may first have to elect leaders for new streams.
const (
	ReadPatience  = 15 * time.Second
	SetupPatience = time.Minute
)

// Session is the run of one command in a namespace that exists.
type Session struct {
	*App
	*kv.Store
	js jetstream.JetStream

	// Alive must be called after each answer of the broker. It restarts the timeout.
	Alive func()
}

// Open opens the namespace, which must exist, and calls f. The context of f ends if the
// broker does not answer for ReadPatience. as is the second part of the connection's name
// on the server, after "cronce".
func (a *App) Open(ctx context.Context, as string, f func(ctx context.Context, r Session) error) error {
	return a.open(ctx, as, nil, f)
}

// OpenTraced is Open for a command that publishes slots. If the environment enables tracing,
// the slots are traced, and ctx continues the trace in TRACEPARENT. If tracing cannot start,
// OpenTraced logs that and runs the command without it.
func (a *App) OpenTraced(ctx context.Context, as string, f func(ctx context.Context, r Session) error) error {
	provider, flush, err := a.Tracing(ctx)
	if err != nil {
		a.Log.Warn("tracing is off", "error", err)
		return a.Open(ctx, as, f)
	}
	defer flush()
	if provider != nil {
		ctx = tracing.Continue(ctx, map[string][]string{core.HeaderTraceparent: {a.Getenv("TRACEPARENT")}})
	}
	return a.open(ctx, as, tracing.New(provider, a.Namespace, Version()), f)
}

func (a *App) open(ctx context.Context, as string, tracer *tracing.Tracer, f func(ctx context.Context, r Session) error) error {
	return a.WithJetStream(ctx, as, ReadPatience, func(ctx context.Context, js jetstream.JetStream, alive func()) error {
		store, err := kv.Open(ctx, js, kv.Options{Namespace: a.Namespace, ReadOnly: true, Logger: a.Log, Trace: tracer.Publish})
		if err != nil {
			return err
		}
		alive()
		return f(ctx, Session{a, store, js, alive})
	})
}

// WithJetStream connects and calls f. The context of f ends if alive is not called for
// patience.
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
	suspicion := time.AfterFunc(suspectAfter, func() {
		if WithoutDeliveries(ctx, js, a.Namespace) {
			cancel(ErrNoDeliveries)
		}
	})
	defer suspicion.Stop()
	err = f(ctx, js, func() { timer.Reset(patience) })
	if errors.Is(context.Cause(ctx), ErrNoDeliveries) && err != nil {
		return Try(ErrNoDeliveries, DeliveriesHint)
	}
	var hinted *hintError
	var value *kv.UnreadableError
	switch {
	case errors.Is(err, job.ErrFull):
		return Try(err, "cronce doctor, which shows the fix")
	case errors.As(err, &hinted):
		return err
	case errors.Is(err, job.ErrDenied):
		return denied(err)
	case errors.As(err, &value):
		return Try(err, "cronce doctor --remove-unreadable")
	}
	return err
}

// SkipUnreadable reports whether err concerns only one stored value, and logs it then. The
// command skips that value and goes on.
func (r Session) SkipUnreadable(err error) bool {
	if !exchange.IsUnreadable(err) {
		return false
	}
	r.Log.Warn("skipped an unreadable value", "error", OneLine(err))
	return true
}

// LogUnreadable logs the first ten values that a listing could not read, and counts the others.
func (r Session) LogUnreadable(unreadable []error) {
	for _, err := range unreadable[:min(len(unreadable), MostNamed)] {
		r.SkipUnreadable(err)
	}
	if more := len(unreadable) - MostNamed; more > 0 {
		r.Log.Warn("skipped more unreadable values", "count", more)
	}
}

// ReadJobFile reads the file at path, or standard input for "-". An error in it is wrong
// usage. If there is no file, the error suggests how to make one.
func (a *App) ReadJobFile(ctx context.Context, path string, options ...spec.Option) (*spec.File, error) {
	file, err := ReadUntil(ctx, func() (*spec.File, error) {
		if path == "-" {
			return jobfile.Read("<stdin>", a.Stdin, options...)
		}
		return jobfile.Load(path, options...)
	})
	if !errors.Is(err, fs.ErrNotExist) {
		return file, Usage(err)
	}
	if dir, unknown := os.Getwd(); unknown == nil && !filepath.IsAbs(path) {
		err = fmt.Errorf("%w (in the folder %s)", err, dir)
	}
	return nil, Try(Usage(err), "cronce import --help")
}

// ReadUntil calls read, which reads standard input or a file. If ctx ends, ReadUntil returns at
// once, although parsing a large file takes seconds and standard input may never end; the reading
// goroutine ends with the process.
func ReadUntil[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := read()
		answers <- answer{value, err}
	}()
	select {
	case r := <-answers:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// Connect connects to the server that the global flags and the environment select. as is
// the second part of the connection's name on the server, after "cronce".
//
// If mayEmbed is true and no server was chosen, this process first joins or becomes the embedded
// server; if one was chosen, Connect waits for it. The returned function closes the connection
// and then the server. Call it once, when nothing uses the connection any more.
func (a *App) Connect(ctx context.Context, as string, mayEmbed bool) (*connect.Conn, func(), error) {
	target, err := a.Target(as)
	if err != nil {
		return nil, nil, err
	}
	leave := func() {}
	if mayEmbed && target.Local() {
		if leave, err = a.joinOrStart(ctx); err != nil {
			return nil, nil, err
		}
	}
	open := target.Connect
	if mayEmbed && !target.Local() {
		open = target.Await // a node runs for long and may start before its server
	}
	nc, err := open(ctx)
	if err != nil {
		leave()
		return nil, nil, ConnectError(err, target)
	}
	return nc, func() { nc.Close(); leave() }, nil
}

// Target is the server that the global flags and the environment select.
func (a *App) Target(as string) (connect.Target, error) {
	target, err := connect.Resolve(connect.Config{
		Server: a.Server, Context: a.Context, Login: a.Login, TLSFirst: a.TLSFirst, Domain: a.Domain, Local: a.Local,
		Inbox: a.Inbox, OwnInbox: a.OwnInbox, Name: as, Getenv: a.Getenv, Logger: a.Log, Dialer: a.Dialer,
	})
	return target, Usage(err)
}

func (a *App) joinOrStart(ctx context.Context) (leave func(), err error) {
	member, err := embed.JoinOrStart(ctx, embed.Config{Listen: a.Local, Store: a.Store, Logger: a.Log})
	if err != nil {
		return nil, err
	}
	return func() {
		if err := member.Close(); err != nil {
			a.Log.Warn("embedded server did not close cleanly", "error", err)
		}
	}, nil
}

// ConnectError marks wrong usage, and suggests how to start or name a server, or a login.
func ConnectError(err error, target connect.Target) error {
	switch {
	case errors.Is(err, job.ErrInvalid):
		return Usage(err)
	case errors.Is(err, nats.ErrNoServers) && target.Local():
		return Try(err, "cronce run -f jobs.yaml, or --server URL")
	case errors.Is(err, nats.ErrNoServers):
		return Try(err, "start that server, or name another one with --server or --context")
	case errors.Is(err, nats.ErrAuthorization):
		return Try(err, "--creds FILE, --nkey FILE, --user NAME with CRONCE_PASSWORD, or --context NAME")
	}
	return err
}
