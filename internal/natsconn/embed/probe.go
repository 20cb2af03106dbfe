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
