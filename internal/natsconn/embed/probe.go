package embed

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// namePrefix begins the name of every embedded server that has no Peer.
const namePrefix = "cronce-"

// probeTimeout limits the wait for a server's INFO.
const probeTimeout = time.Second

// info is the first message of a NATS server to every client.
type info struct {
	Name string `json:"server_name"`
}

var (
	// errAbsent: no process listens there.
	errAbsent = errors.New("nothing answers")
	// errNotNATS: what answers is something else.
	errNotNATS = errors.New("not a NATS server")
	// errUnclear: the connection was accepted and then closed or silent. A stopping server
	// looks like this, and so does a frozen one.
	errUnclear = errors.New("no answer")
)

// probe reads the INFO of the server on addr. Every error wraps one of the three above.
func probe(ctx context.Context, addr string) (info, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		// The reason does not matter: if the address is in use all the same, or is not
		// ours, listening on it fails.
		return info{}, fmt.Errorf("%w on %s: %w", errAbsent, addr, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	const most = 64 << 10
	line, err := bufio.NewReader(io.LimitReader(conn, most)).ReadBytes('\n')
	greeting := []byte("INFO ")
	if n := min(len(line), len(greeting)); !bytes.Equal(line[:n], greeting[:n]) {
		return info{}, fmt.Errorf("%w on %s", errNotNATS, addr)
	}
	if err != nil {
		return info{}, fmt.Errorf("%w on %s: %w", errUnclear, addr, err)
	}
	var in info
	if err := json.Unmarshal(line[len(greeting):], &in); err != nil {
		return info{}, fmt.Errorf("%w on %s", errNotNATS, addr)
	}
	return in, nil
}

// inUse reports whether err says that an address is taken.
func inUse(err error) bool {
	const windowsInUse = syscall.Errno(10048)
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, windowsInUse)
}

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
