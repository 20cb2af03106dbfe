package embed

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"
)

// Status is a snapshot of a server.
type Status struct {
	// Connections counts the clients. SlowConsumers counts the clients that the server
	// disconnected since its start because they read too slowly.
	Connections, SlowConsumers uint64

	// Messages and Bytes count the content of its streams.
	Messages, Bytes uint64
}

// errAway is of the time while the server cannot be started anew: see watchStorage.
var errAway = errors.New("the embedded server is down: it could not be started anew after its storage was full")

// Status takes a snapshot of the server.
func (s *Server) Status() (Status, error) {
	ns := s.running()
	if ns == nil {
		return Status{}, errAway
	}
	js, err := ns.Jsz(nil)
	if err != nil {
		return Status{}, err
	}
	return Status{
		Connections: uint64(ns.NumClients()), SlowConsumers: uint64(ns.NumSlowConsumers()),
		Messages: js.Messages, Bytes: js.Store,
	}, nil
}

// Ready returns an error that says why the server does not serve: it is not
// listening, or JetStream is not well.
func (s *Server) Ready() error {
	ns := s.running()
	if ns == nil {
		return errAway
	}
	if h := ns.Healthz(&server.HealthzOptions{JSServerOnly: true}); h.StatusCode != 200 {
		return errors.New(h.Error)
	}
	return nil
}

// Live returns an error if the server does not greet a client within a second. If that lasts,
// only a restart of the process helps. A full disk is no such error: see watchStorage.
func (s *Server) Live() error {
	if s.running() == nil {
		return nil
	}
	if _, err := probe(context.Background(), s.cfg.Listen); err != nil {
		return fmt.Errorf("the embedded server does not greet its clients: %w", err)
	}
	return nil
}
