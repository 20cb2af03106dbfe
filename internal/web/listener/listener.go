// Package listener serves HTTP on an address. It has the limits that a server needs if other
// machines can reach it: the size of headers, the time to read and to write, and the number of
// connections. It logs each request and reads a certificate again when its files change. On
// shutdown it accepts no more requests, ends the event streams and finishes the other requests.
package listener

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"

	"github.com/cronce-io/cronce/internal/web/reload"
)

const (
	maxHeader      = 64 << 10 // bytes
	maxConnections = 1000
	readHeader     = 5 * time.Second
	read           = 30 * time.Second

	// write bounds the time until an answer is written. A handler that streams or waits extends
	// it with http.ResponseController.
	write = time.Minute
	idle  = 2 * time.Minute
)

// DefaultGrace is the default of Config.Grace.
const DefaultGrace = 10 * time.Second

// ErrCertificate is the error of New if it cannot use the certificate or its key.
var ErrCertificate = errors.New("invalid --http-cert or --http-key")

// Config of a Server.
type Config struct {
	// Addr is the address to listen on, HOST:PORT.
	Addr string

	// Cert and Key are files with a certificate and its key, PEM. Both or none must be set;
	// none means HTTP without TLS.
	Cert, Key string

	// Grace is how long Serve waits for running requests on shutdown. 0: DefaultGrace.
	Grace time.Duration

	// Logger gets a line for each request, on level Info. Nil: no logs.
	Logger *slog.Logger
}

// Server listens on an address.
type Server struct {
	cfg     Config
	address net.Listener
	tls     *tls.Config
}

// New opens the address and reads the certificate.
func New(cfg Config) (*Server, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Grace = cmp.Or(cfg.Grace, DefaultGrace)
	s := &Server{cfg: cfg}
	if (cfg.Cert == "") != (cfg.Key == "") {
		return nil, fmt.Errorf("%w: they need each other", ErrCertificate)
	}
	if cfg.Cert != "" {
		pair, err := reload.New(cfg.Logger, func() (*tls.Certificate, error) {
			c, err := tls.LoadX509KeyPair(cfg.Cert, cfg.Key)
			return &c, err
		}, cfg.Cert, cfg.Key)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCertificate, err)
		}
		s.tls = &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.Get(), nil },
		}
	}
	l, err := net.Listen("tcp", cfg.Addr)
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err // the rest of the text repeats the address
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w: choose another address, or find the process that uses this one", cfg.Addr, err)
	}
	s.address = netutil.LimitListener(l, maxConnections)
	return s, nil
}

// URL is the address that the server listens on, like http://127.0.0.1:8080.
func (s *Server) URL() string {
	scheme := "http"
	if s.tls != nil {
		scheme = "https"
	}
	return scheme + "://" + s.address.Addr().String()
}

// Close closes the address of a server that does not serve.
func (s *Server) Close() error { return s.address.Close() }

// Serve answers requests until ctx ends. Then it calls closing, which must end event streams,
// and waits for the other requests.
func (s *Server) Serve(ctx context.Context, h http.Handler, closing func()) error {
	server := &http.Server{
		Handler: Log(s.cfg.Logger, h), TLSConfig: s.tls, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: readHeader, ReadTimeout: read, WriteTimeout: write, IdleTimeout: idle,
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug), // broken handshakes and the like
	}
	served := make(chan error, 1)
	go func() {
		if s.tls != nil {
			served <- server.ServeTLS(s.address, "", "")
		} else {
			served <- server.Serve(s.address)
		}
	}()
	select {
	case err := <-served:
		closing()
		return fmt.Errorf("serve %s: %w", s.URL(), err)
	case <-ctx.Done():
	}
	closing()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Grace)
	defer cancel()
	if err := server.Shutdown(last); err != nil {
		s.cfg.Logger.Warn("requests cut off by the shutdown", "error", err)
		_ = server.Close() // the grace period is over
	}
	<-served
	return nil
}
