package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
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
// those that no server was asked for wrap job.ErrInvalid.
func (t Target) Connect(ctx context.Context) (*nats.Conn, error) {
	nc, err := t.dial()
	if err != nil {
		return nil, err
	}
	if err := requireJetStream(ctx, nc, t.String()); err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}

func (t Target) dial() (*nats.Conn, error) {
	options := t.options()
	if t.context != "" {
		return t.dialContext(options)
	}
	nc, err := nats.Connect("", append(options, func(o *nats.Options) error {
		o.Servers = t.servers
		return nil
	})...)
	if err != nil {
		return nil, explain(err, t.String())
	}
	return nc, nil
}

func (t Target) dialContext(options []nats.Option) (*nats.Conn, error) {
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
	case settings.JSDomain != "" || settings.JSAPIPrefix != "":
		nc.Close()
		return nil, fmt.Errorf("%w %s: jetstream_domain and jetstream_api_prefix are not supported yet", job.ErrInvalid, t)
	}
	return nc, nil
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
func requireJetStream(ctx context.Context, nc *nats.Conn, where string) error {
	js, err := jetstream.New(nc)
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
