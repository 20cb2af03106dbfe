package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/web/auth"
	"github.com/cronce-io/cronce/internal/web/auth/oidc"
	"github.com/cronce-io/cronce/internal/web/listener"
	"github.com/cronce-io/cronce/internal/web/problem"
	"github.com/cronce-io/cronce/internal/web/secure"
	"github.com/cronce-io/cronce/web"
)

// httpFlags are the flags of the HTTP API: where it listens, and how users log in.
type httpFlags struct {
	name, addr           string // the address, and the name of its flag
	cert, key, url       string
	tokens, passwords    string
	userHeader           string
	proxies              []string
	issuer, id, idSecret string
	insecure             bool
}

const httpAuthHelp = `The dashboard and the HTTP API (docs/dashboard.md, docs/api.md) do what the NATS login
of this process may do. On a loopback address they need no login. On any other one they
start only with a way to log in: a file of tokens or passwords, a proxy that names the
user, an OpenID provider, or --http-insecure. The files of tokens, passwords and
certificates are read again when they change.`

func (f *httpFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.url, "http-url", "", "`URL` that browsers use, if a proxy is in between: https://ops.example.com/cronce")
	flags.StringVar(&f.cert, "http-cert", "", "`file` with a certificate, PEM: serve HTTPS")
	flags.StringVar(&f.key, "http-key", "", "`file` with the key of --http-cert, PEM")
	flags.StringVar(&f.tokens, "http-token-file", "", "`file` with a line USER:TOKEN for each user: bearer tokens, and a login page")
	flags.StringVar(&f.passwords, "http-basic-file", "", "`file` of users with bcrypt hashes, as htpasswd -B writes it")
	flags.StringVar(&f.userHeader, "http-user-header", "", "`header` in which --http-trusted-proxy names the user")
	flags.StringSliceVar(&f.proxies, "http-trusted-proxy", nil, "address or `CIDR` of a proxy that logs users in; repeatable")
	flags.StringVar(&f.issuer, "oidc-issuer", "", "`URL` of an OpenID provider at which users log in")
	flags.StringVar(&f.id, "oidc-client-id", "", "client `ID` at the provider; its redirect URL is that of --http-url with /login/callback")
	flags.StringVar(&f.idSecret, "oidc-client-secret-file", "", "`file` with the client's secret")
	flags.BoolVar(&f.insecure, "http-insecure", false, "let everyone who reaches the address do everything")
}

// config checks the flags. It reads the files that they name.
func (f httpFlags) config(a *base.App) (cfg auth.Config, err error) {
	if err := checkAddr(f.name, f.addr, "8080"); err != nil {
		return cfg, err
	}
	cfg = auth.Config{
		Listen: f.addr, TokenFile: f.tokens, BasicFile: f.passwords, UserHeader: f.userHeader,
		Insecure: f.insecure, Local: a.Operator(), Logger: a.Log,
	}
	if f.url != "" {
		u, err := url.Parse(f.url)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return cfg, fmt.Errorf("invalid --http-url %q: want a URL like https://ops.example.com/cronce", f.url)
		}
		cfg.URL = u
	}
	for _, text := range f.proxies {
		prefix, err := netip.ParsePrefix(text)
		if addr, addrErr := netip.ParseAddr(text); addrErr == nil {
			prefix, err = addr.Prefix(addr.BitLen())
		}
		if err != nil {
			return cfg, fmt.Errorf("invalid --http-trusted-proxy %q: want an address or a CIDR like 10.0.0.0/8", text)
		}
		cfg.TrustedProxies = append(cfg.TrustedProxies, prefix)
	}
	if f.issuer == "" && f.id+f.idSecret != "" {
		return cfg, errors.New("--oidc-client-id and --oidc-client-secret-file need --oidc-issuer")
	}
	if f.issuer != "" {
		if cfg.OIDC, err = oidc.New(f.issuer, f.id, f.idSecret); err != nil {
			return cfg, err
		}
	}
	return cfg, nil
}

// isSet reports whether a flag is set that has no effect without an address.
func (f httpFlags) isSet() bool {
	return f.cert+f.key+f.url+f.tokens+f.passwords+f.userHeader+f.issuer+f.id+f.idSecret != "" || len(f.proxies) > 0 || f.insecure
}

// httpServer serves the HTTP API. Its zero value serves nothing.
type httpServer struct {
	a       *base.App
	guard   *auth.Guard
	server  *listener.Server
	handler atomic.Pointer[web.Handler] // nil until the namespace is open
	health  *health                     // says what is missing until then
	stopped func()
	once    sync.Once
}

// serveHTTP listens before it returns, so that a command can report a wrong flag or an address in
// use before it starts anything else. Until open is called, requests get 503 with what h says is
// missing. metrics, if not nil, serves metricsPaths without a login.
func (f httpFlags) serveHTTP(a *base.App, h *health, metrics http.Handler) (*httpServer, error) {
	s := &httpServer{a: a, health: h}
	if f.addr == "" {
		if f.isSet() {
			return nil, base.Usage(fmt.Errorf("the flags --http-* and --oidc-* need --%s", f.name))
		}
		return s, nil
	}
	cfg, err := f.config(a)
	if err != nil {
		return nil, base.Usage(err)
	}
	if s.guard, err = auth.New(cfg); err != nil {
		return nil, base.Usage(err)
	}
	s.server, err = listener.New(listener.Config{Addr: f.addr, Cert: f.cert, Key: f.key, Logger: a.Log})
	switch {
	case errors.Is(err, listener.ErrCertificate):
		return nil, base.Usage(err)
	case err != nil:
		return nil, fmt.Errorf("--%s: %w", f.name, err)
	}
	if f.insecure {
		a.Log.Warn("the HTTP API needs no login: everyone who reaches the address can do what this process may do", "url", s.server.URL())
	}
	s.stopped = background(context.Background(), func(ctx context.Context) {
		if err := s.server.Serve(ctx, s.routes(metrics), s.closing); err != nil {
			a.Log.Error("HTTP server stopped", "error", err)
		}
	})
	a.Log.Info("serving the HTTP API", "url", s.server.URL())
	return s, nil
}

// metricsAddrHelp describes --metrics-addr of a command that serves the HTTP API too.
func (f *httpFlags) metricsAddrHelp() string { return metricsAddrHelp + "; may be that of --" + f.name }

// serve starts to serve the HTTP API, metrics and health: on one listener if they have the same
// address.
func (f httpFlags) serve(a *base.App, metricsAddr string, h *health, measures ...prometheus.Collector) (pages *httpServer, stop func(), err error) {
	var metrics http.Handler
	if metricsAddr != "" && metricsAddr == f.addr {
		metricsAddr = ""
		if metrics, err = newMetricsHandler(h, measures...); err != nil {
			return nil, nil, err
		}
	}
	if pages, err = f.serveHTTP(a, h, metrics); err != nil {
		return nil, nil, err
	}
	if metrics != nil {
		warnOfMetrics(a, f.addr)
	}
	stopMetrics, err := serveMetrics(a, metricsAddr, h, measures...)
	if err != nil {
		pages.stop()
		return nil, nil, err
	}
	return pages, func() { pages.stop(); stopMetrics() }, nil
}

// routes returns the handler of all requests. The guard lets requests through to the API.
func (s *httpServer) routes(metrics http.Handler) http.Handler {
	guarded := secure.Wrap(s.guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		listener.SetUser(r.Context(), auth.User(r))
		if h := s.handler.Load(); h != nil {
			h.ServeHTTP(w, r)
			return
		}
		s.answerNotReady(w, r)
	})))
	if metrics == nil {
		return guarded
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(metricsPaths, r.URL.Path) {
			metrics.ServeHTTP(w, r)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// answerNotReady answers requests until the namespace is open.
func (s *httpServer) answerNotReady(w http.ResponseWriter, r *http.Request) {
	why := "this process is starting"
	if ready, _ := s.health.ask(); firstFailure(ready) != nil {
		why = firstFailure(ready).Err.Error()
	}
	problem.Refuse(w, r, fault.Unavailable, why)
}

// open makes the server answer requests with the client.
func (s *httpServer) open(c *client.Client) {
	if s.server != nil {
		s.handler.Store(web.New(c, web.WithUser(auth.User), web.WithLogger(s.a.Log)))
	}
}

func (s *httpServer) closing() {
	if h := s.handler.Load(); h != nil {
		h.Close()
	}
}

// stop ends event streams, finishes orders and closes the listener. It may be called again.
func (s *httpServer) stop() {
	if s.server != nil {
		s.once.Do(s.stopped)
	}
}
