// Package web serves Cronce's dashboard and HTTP API inside the server of another program:
//
//	c, err := client.New(ctx, nc)
//	...
//	h := web.New(c, web.WithUser(func(r *http.Request) string { return userOf(r) }))
//	defer h.Close()
//	mux.Handle("/cronce/", http.StripPrefix("/cronce", loggedIn(h)))
//
// The handler does not authenticate users: put it behind the authentication of your program. It
// can do what the NATS login of the client can do, and the broker refuses everything else.
// "cronce run --http" and "cronce ui" serve the same with a login of their own.
//
// It is a package of its own, so that programs that do not import it link no web server.
package web

import (
	"log/slog"
	"net/http"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/text/version"
	"github.com/cronce-io/cronce/internal/web/api"
	"github.com/cronce-io/cronce/internal/web/pages"
	"github.com/cronce-io/cronce/internal/web/pages/shell"
	"github.com/cronce-io/cronce/internal/web/secure"
)

// Option changes a Handler. New ignores an option that is nil.
type Option func(*config)

type config struct {
	user   func(*http.Request) string
	logger *slog.Logger
}

// WithUser sets the function that names the user of a request, like "alice@example.com": at most
// job.MaxToken bytes of text, without control characters. Records, events and conflicts show it.
// If it returns "", orders carry the operator name of the client. If it returns a name that is not
// valid, orders and all requests to the API are answered with 400. It is called concurrently.
// Default: orders always carry the name of the client.
func WithUser(user func(*http.Request) string) Option { return func(c *config) { c.user = user } }

// WithLogger sets the logger of requests that fail. Default: no logs.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.logger = l } }

// Handler is an http.Handler. It is safe for concurrent use.
type Handler struct {
	api   *api.API
	pages *pages.Site
	http  http.Handler
}

// New returns a handler of the paths below "/". The client must not be nil. If you mount the handler
// below a prefix, remove the prefix with http.StripPrefix. Keep the client's connection open until
// Close has returned.
func New(c *client.Client, options ...Option) *Handler {
	var cfg config
	for _, o := range options {
		if o != nil {
			o(&cfg)
		}
	}
	a := api.New(api.Config{Client: c, User: cfg.user, Logger: cfg.logger, Version: version.Module()})
	p := pages.New(shell.Config{
		Client: c, User: cfg.user, Logger: cfg.logger, Version: version.Module(), Subscribe: a.Subscribe, Recent: a.Recent, Document: a.Document(),
	})
	mux := http.NewServeMux()
	mux.Handle(api.Prefix+"/", a)
	mux.Handle("/", p)
	return &Handler{a, p, secure.Wrap(mux)}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.http.ServeHTTP(w, r) }

// Close ends the event streams and the waiting requests. Call it when the server shuts down,
// because http.Server.Shutdown waits for them otherwise. It may be called more than once.
func (h *Handler) Close() {
	h.pages.Close()
	h.api.Close()
}
