package main

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/natsconn/connect"
	"github.com/cronce-io/cronce/internal/natsconn/embed"
	"github.com/cronce-io/cronce/job"
)

// connect connects to the server that the global flags and the environment mean.
// as is what the server's administrator sees behind "cronce". With mayEmbed, and
// when nothing was chosen, this process joins or becomes the embedded server
// first; when a server was chosen, it is waited for. The returned function ends the connection, and then the server: call it
// once, after everything that uses the connection.
func (a *app) connect(ctx context.Context, as string, mayEmbed bool) (*connect.Conn, func(), error) {
	target, err := a.target(as)
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
		open = target.Await // a node is for good, and may be started before its server
	}
	nc, err := open(ctx)
	if err != nil {
		leave()
		return nil, nil, connectError(err, target)
	}
	return nc, func() { nc.Close(); leave() }, nil
}

// target is the server that the global flags and the environment mean.
func (a *app) target(as string) (connect.Target, error) {
	target, err := connect.Resolve(connect.Config{
		Server: a.server, Context: a.context, Login: a.login, Domain: a.domain, Local: a.local,
		Inbox: a.inbox, Name: as, Getenv: a.getenv, Logger: a.log,
	})
	return target, usage(err)
}

func (a *app) joinOrStart(ctx context.Context) (leave func(), err error) {
	member, err := embed.JoinOrStart(ctx, embed.Config{Listen: a.local, Store: a.store, Logger: a.log})
	if err != nil {
		return nil, err
	}
	return func() {
		if err := member.Close(); err != nil {
			a.log.Warn("the embedded server did not end cleanly", "error", err)
		}
	}, nil
}

func connectError(err error, target connect.Target) error {
	if errors.Is(err, job.ErrInvalid) {
		return usage(err)
	}
	if target.Local() && errors.Is(err, nats.ErrNoServers) {
		return try(err, "cronce run -f jobs.yaml, or --server URL")
	}
	return err
}
