package base

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/natsconn/connect"
	"github.com/cronce-io/cronce/internal/natsconn/embed"
	"github.com/cronce-io/cronce/job"
)

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
		Server: a.Server, Context: a.Context, Login: a.Login, Domain: a.Domain, Local: a.Local,
		Inbox: a.Inbox, OwnInbox: a.OwnInbox, Name: as, Getenv: a.Getenv, Logger: a.Log,
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

// ConnectError marks wrong usage, and suggests how to start or name a server.
func ConnectError(err error, target connect.Target) error {
	if errors.Is(err, job.ErrInvalid) {
		return Usage(err)
	}
	if target.Local() && errors.Is(err, nats.ErrNoServers) {
		return Try(err, "cronce run -f jobs.yaml, or --server URL")
	}
	return err
}
