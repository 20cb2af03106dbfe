package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/cronce-io/cronce/job"
)

// infoTimeout limits the request for the account's info. Without an answer Connect goes on.
const infoTimeout = 3 * time.Second

// Connect connects to the target, which must have JetStream. The connection reconnects
// until it is closed. Errors name the target and the cause. An error that can be found without
// a server wraps job.ErrInvalid. If ctx ends before the connection is established, Connect returns
// its cause at once.
func (t Target) Connect(ctx context.Context) (*Conn, error) {
	conn, err := t.dialUntil(ctx)
	if err != nil {
		return nil, err
	}
	if t.cfg.Domain != "" {
		conn.domain, conn.prefix = t.cfg.Domain, ""
	}
	if err := conn.requireJetStream(ctx, t.String()); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// Await connects like Connect, but waits for a server that is not running yet. It logs what
// it waits for at once and then every minute. If waiting cannot fix the error (a refused
// login, no JetStream, a TLS failure), Await returns it at once. If ctx ends, Await returns
// its cause.
func (t Target) Await(ctx context.Context) (*Conn, error) {
	began, logged := time.Now(), time.Time{}
	for n := 0; ; n++ {
		conn, err := t.Connect(ctx)
		switch {
		case err == nil && !logged.IsZero():
			t.cfg.Logger.Info("connected to NATS", "server", redactText(conn.ConnectedUrl()), "after", time.Since(began).Round(time.Second))
			return conn, nil
		case err == nil || !isTemporary(err):
			return conn, err
		case logged.IsZero():
			t.cfg.Logger.Warn("waiting for the NATS server", "server", t.String(), "error", err)
			logged = time.Now()
		case time.Since(logged) >= remindEvery:
			t.cfg.Logger.Warn("still waiting for the NATS server", "server", t.String(), "for", time.Since(began).Round(time.Second), "error", err)
			logged = time.Now()
		}
		select {
		case <-time.After(t.delay(n)):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// isTemporary reports whether a connection failed because no server answered. That includes a host
// name without an address.
func isTemporary(err error) bool {
	var cert *tls.CertificateVerificationError
	var op *net.OpError
	var network net.Error
	switch {
	case errors.Is(err, job.ErrInvalid), errors.As(err, &cert):
		return false
	case errors.As(err, &op) && strings.HasSuffix(op.Op, " error"): // a TLS alert
		return false
	case errors.Is(err, errWantsTLSFirst):
		return false
	case errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrTimeout), errors.Is(err, io.EOF), isFull(err):
		return true
	}
	return errors.As(err, &network)
}

// Conn is a connection together with the JetStream domain or API prefix to use on it.
type Conn struct {
	*nats.Conn
	domain, prefix string // of the API; at most one is set
}

// closeWait limits how long Close waits for a blocked socket.
const closeWait = 2 * time.Second

// Close closes the connection. If the socket accepts no data, the client blocks up to its
// FlusherTimeout; Close then returns earlier.
func (c *Conn) Close() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.Conn.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeWait):
	}
}

// JetStream returns a client of the target's JetStream: the account's own, the one of a
// domain, or one imported under a prefix.
func (c *Conn) JetStream() (jetstream.JetStream, error) {
	switch {
	case c.domain != "":
		return jetstream.NewWithDomain(c.Conn, c.domain)
	case c.prefix != "":
		return jetstream.NewWithAPIPrefix(c.Conn, c.prefix)
	}
	return jetstream.New(c.Conn)
}

// dialUntil calls dial and returns early if ctx ends. dial has no context: a silent server
// blocks it for the whole timeout, and a user may be waiting at a terminal.
func (t Target) dialUntil(ctx context.Context) (*Conn, error) {
	type dialled struct {
		conn *Conn
		err  error
	}
	done := make(chan dialled, 1)
	go func() {
		conn, err := t.dial()
		done <- dialled{conn, err}
	}()
	select {
	case d := <-done:
		return d.conn, d.err
	case <-ctx.Done():
		go func() {
			if d := <-done; d.err == nil {
				d.conn.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

func (t Target) dial() (*Conn, error) {
	options, limit := t.options(), t.patience.now()
	if t.context != "" {
		return t.dialContext(options, limit)
	}
	nc, err := nats.Connect("", append(options, func(o *nats.Options) error {
		o.Servers = t.servers
		return nil
	})...)
	if err != nil {
		if errors.Is(err, job.ErrInvalid) {
			return nil, err
		}
		return nil, explain(t.orTLSFirst(err, t.servers), t.String(), limit)
	}
	return &Conn{Conn: nc}, nil
}

func (t Target) dialContext(options []nats.Option, limit time.Duration) (*Conn, error) {
	// Our option is applied last. If it was not applied, the NATS context or the login is wrong.
	// Otherwise the error comes from the server.
	var servers []string
	nc, settings, err := natscontext.Connect(t.context, append(options, func(o *nats.Options) error {
		if len(o.Servers) == 0 || o.Servers[0] == "" {
			o.Servers = []string{nats.DefaultURL} // as the nats CLI does
		}
		servers = o.Servers
		return nil
	})...)
	switch {
	case err != nil && servers == nil:
		return nil, fmt.Errorf("%w %s: %w", job.ErrInvalid, t, err)
	case err != nil:
		return nil, explain(t.orTLSFirst(err, servers), redact(servers)+" ("+t.String()+")", limit)
	case settings.JSDomain != "" && settings.JSAPIPrefix != "":
		nc.Close()
		return nil, fmt.Errorf("%w %s: jetstream_domain and jetstream_api_prefix exclude each other", job.ErrInvalid, t)
	}
	return &Conn{nc, settings.JSDomain, settings.JSAPIPrefix}, nil
}

// malformedHTTP is in the error of package http, which has no type, about an answer that is not HTTP. A
// port for plain NATS connections answers with the server's INFO.
const malformedHTTP = "malformed HTTP"

// explain describes in one line why the connection to where failed. limit is the limit of the
// handshake.
func explain(err error, where string, limit time.Duration) error {
	var (
		network net.Error
		record  tls.RecordHeaderError
		cert    *tls.CertificateVerificationError
		host    x509.HostnameError
		unknown x509.UnknownAuthorityError
	)
	switch {
	case errors.Is(err, nats.ErrNoServers):
		return &noServerError{where, err}
	case refusesLogin(err):
		return fmt.Errorf("%s refuses the credentials: %w", where, err)
	case errors.Is(err, nats.ErrSecureConnRequired), errors.Is(err, nats.ErrSecureConnWanted), errors.Is(err, nats.ErrTLS),
		errors.As(err, &record), errors.As(err, &cert), errors.As(err, &host), errors.As(err, &unknown):
		return fmt.Errorf("no agreement on TLS with %s: %w", where, err)
	case errors.Is(err, nats.ErrTimeout), errors.As(err, &network) && network.Timeout():
		return fmt.Errorf("%s does not answer within %v: %w", where, limit, err)
	case errors.Is(err, errWantsTLSFirst):
		return fmt.Errorf("%s %w: add --tls-first, or set CRONCE_TLS_FIRST=true, or tls_first in the NATS context", where, err)
	case isFull(err):
		return fmt.Errorf("%s closes new connections: max_connections of the server or the account is reached: %w", where, err)
	case isClosed(err):
		// A full server closes the connection, and often before the client has read why.
		return fmt.Errorf("%s closes new connections without saying why: its log does (a frequent cause is max_connections): %w", where, err)
	case strings.Contains(err.Error(), malformedHTTP):
		return fmt.Errorf("%s does not speak WebSocket: use nats://, or the port of the server's block websocket", where)
	case errors.Is(err, nats.ErrNoInfoReceived):
		return fmt.Errorf("%s is not a NATS server: %w", where, err)
	}
	return fmt.Errorf("cannot connect to %s: %w", where, err)
}

// isClosed reports whether the server closed the connection in the handshake.
func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// noServerError replaces the message of nats.ErrNoServers.
type noServerError struct {
	where string
	err   error
}

func (e *noServerError) Error() string { return "nothing answers on " + e.where }
func (e *noServerError) Unwrap() error { return e.err }

// refusesLogin reports whether the server refused the credentials.
func refusesLogin(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) ||
		errors.Is(err, nats.ErrAuthRevoked) || errors.Is(err, nats.ErrAccountAuthExpired)
}

// isFull reports whether the server, or the account, has as many connections as it may have. In a
// handshake the client returns the server's text.
func isFull(err error) bool {
	return strings.Contains(err.Error(), "connections exceeded")
}

// requireJetStream returns an error if the server or the account has no JetStream. If the
// login may not read the account's info, there is no error; the next request fails with the
// reason.
func (c *Conn) requireJetStream(ctx context.Context, where string) error {
	if c.domain != "" {
		where = fmt.Sprintf("domain %q on %s", c.domain, where)
	}
	js, err := c.JetStream()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	_, err = js.AccountInfo(ctx)
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("%s has JetStream, but not for this account: %w", where, err)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		next := "start it with JetStream enabled (nats-server -js), or name a domain that it reaches with --js-domain"
		if c.domain != "" {
			next = "want the domain of a server with JetStream that this one reaches"
		}
		return fmt.Errorf("%s runs without JetStream: %s: %w", where, next, err)
	}
	return nil
}
