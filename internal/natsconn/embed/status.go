package embed

import (
	"errors"

	"github.com/nats-io/nats-server/v2/server"
)

// Status is how a server is at one moment.
type Status struct {
	// Connections is how many clients there are, SlowConsumers how many were cut
	// off since the start because they did not read what was sent to them.
	Connections, SlowConsumers uint64

	// Messages and Bytes are what its streams hold.
	Messages, Bytes uint64
}

// errAway is of the time while the server cannot be started anew: see watchStorage.
var errAway = errors.New("the embedded server is down: it could not be started anew after its storage was full")

// Status asks the server how it is.
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
