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

// errDown is the error while watchStorage could not restart the server.
var errDown = errors.New("the embedded server is down: it could not be restarted after its storage was full")

// Status takes a snapshot of the server.
func (s *Server) Status() (Status, error) {
	ns := s.running()
	if ns == nil {
		return Status{}, errDown
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

// Ready returns an error if the server does not serve: it does not listen, or JetStream is not
// healthy.
func (s *Server) Ready() error {
	ns := s.running()
	if ns == nil {
		return errDown
	}
	if h := ns.Healthz(&server.HealthzOptions{JSServerOnly: true}); h.StatusCode != 200 {
		return errors.New(h.Error)
	}
	return nil
}

// Live returns an error if the server does not send its INFO to a client within a second. If that
// lasts, only a restart of the process helps. While the server is down because of a full disk, Live
// returns nil: watchStorage restarts the server itself.
func (s *Server) Live() error {
	if s.running() == nil {
		return nil
	}
	if _, err := probe(context.Background(), s.cfg.Listen); err != nil {
		return fmt.Errorf("the embedded server does not greet its clients: %w", err)
	}
	return nil
}
