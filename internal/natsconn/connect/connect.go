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
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/cronce-io/cronce/job"
)

// timeout is how long one server may take to answer.
const timeout = 3 * time.Second

// Connect connects to the target, which must have JetStream. The connection is
// kept up until it is closed. Errors name the target and what is wrong with it;
// those that no server was asked for wrap job.ErrInvalid. When ctx ends, its cause is
// returned, at once.
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

// Await connects as Connect does, and waits for a server that is not there yet: it
// says at once what it waits for, and again each minute. What waiting does not mend (a
// login that is refused, no JetStream, no agreement on TLS) is an error at once. When
// ctx ends, its cause is returned.
func (t Target) Await(ctx context.Context) (*Conn, error) {
	began, said := time.Now(), time.Time{}
	for n := 0; ; n++ {
		conn, err := t.Connect(ctx)
		switch {
		case err == nil && !said.IsZero():
			t.cfg.Logger.Info("connected to NATS", "server", redactText(conn.ConnectedUrl()), "after", time.Since(began).Round(time.Second))
			return conn, nil
		case err == nil || !mayPass(err):
			return conn, err
		case said.IsZero():
			t.cfg.Logger.Warn("waiting for the NATS server", "server", t.String(), "error", err)
			said = time.Now()
		case time.Since(said) >= remindEvery:
			t.cfg.Logger.Warn("still waiting for the NATS server", "server", t.String(), "for", time.Since(began).Round(time.Second), "error", err)
			said = time.Now()
		}
		select {
		case <-time.After(t.delay(n)):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// mayPass reports whether a connection failed because nobody was there to answer, a
// host that has no address yet included.
func mayPass(err error) bool {
	var cert *tls.CertificateVerificationError
	var op *net.OpError
	var network net.Error
	switch {
	case errors.Is(err, job.ErrInvalid), errors.As(err, &cert):
		return false
	case errors.As(err, &op) && strings.HasSuffix(op.Op, " error"): // a TLS alert
		return false
	case errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrTimeout), errors.Is(err, io.EOF):
		return true
	}
	return errors.As(err, &network)
}

// Conn is a connection, and knows where on it JetStream is.
type Conn struct {
	*nats.Conn
	domain, prefix string // of the API; one at most
}

// closeWait is how long Close waits for a socket that does not drain.
const closeWait = 2 * time.Second

// Close closes the connection. It returns before if the socket takes nothing: the client
// waits for that up to its FlusherTimeout.
func (c *Conn) Close() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.Conn.Close()
	}()
	late := time.NewTimer(closeWait)
	defer late.Stop()
	select {
	case <-closed:
	case <-late.C:
	}
}

// JetStream is a client of the JetStream that the target means: that of the
// account, of a domain, or one that is imported under a prefix.
func (c *Conn) JetStream() (jetstream.JetStream, error) {
	switch {
	case c.domain != "":
		return jetstream.NewWithDomain(c.Conn, c.domain)
	case c.prefix != "":
		return jetstream.NewWithAPIPrefix(c.Conn, c.prefix)
	}
	return jetstream.New(c.Conn)
}

// dialUntil is dial, which knows no context: a server that is silent holds it up for
// the whole of its timeout, and somebody may be waiting at a terminal.
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
	options := t.options()
	if t.context != "" {
		return t.dialContext(options)
	}
	nc, err := nats.Connect("", append(options, func(o *nats.Options) error {
		o.Servers = t.servers
		return nil
	})...)
	if err != nil {
		if errors.Is(err, job.ErrInvalid) {
			return nil, err
		}
		return nil, explain(err, t.String())
	}
	return &Conn{Conn: nc}, nil
}

func (t Target) dialContext(options []nats.Option) (*Conn, error) {
	// Our option is the last one to be applied: what fails before is the
	// context itself, what fails later is the server.
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
		return nil, explain(err, redact(servers)+" ("+t.String()+")")
	case settings.JSDomain != "" && settings.JSAPIPrefix != "":
		nc.Close()
		return nil, fmt.Errorf("%w %s: jetstream_domain and jetstream_api_prefix exclude each other", job.ErrInvalid, t)
	}
	return &Conn{nc, settings.JSDomain, settings.JSAPIPrefix}, nil
}

// explain says in one line what is wrong with the server at where.
func explain(err error, where string) error {
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
		return fmt.Errorf("%s does not answer within %v: %w", where, timeout, err)
	case errors.Is(err, nats.ErrNoInfoReceived):
		return fmt.Errorf("%s is not a NATS server: %w", where, err)
	}
	return fmt.Errorf("cannot connect to %s: %w", where, err)
}

// noServerError spares the reader nats.go's own words for the same.
type noServerError struct {
	where string
	err   error
}

func (e *noServerError) Error() string { return "nothing answers on " + e.where }
func (e *noServerError) Unwrap() error { return e.err }

func refusesLogin(err error) bool {
	for _, refusal := range []error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// requireJetStream refuses a server, or an account, that has none. Whoever may
// not ask is let through: the next request will tell.
func (c *Conn) requireJetStream(ctx context.Context, where string) error {
	if c.domain != "" {
		where = fmt.Sprintf("domain %q on %s", c.domain, where)
	}
	js, err := c.JetStream()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err = js.AccountInfo(ctx)
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("%s has JetStream, but not for this account: %w", where, err)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		return fmt.Errorf("%s runs without JetStream: start it with JetStream enabled (nats-server -js): %w", where, err)
	}
	return nil
}
