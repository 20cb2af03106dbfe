package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/web/link"
	"github.com/cronce-io/cronce/internal/web/problem"
	"github.com/cronce-io/cronce/job"
)

// Config says which users the server admits. At least one way to log in, Insecure, or a loopback
// address in Listen is needed.
type Config struct {
	// Listen is the address, HOST:PORT, that the server listens on.
	Listen string

	// URL is the address that browsers use if it differs from Listen, for example behind a proxy. It
	// may have a path. Nil: the address of Listen.
	URL *url.URL

	// TokenFile is a file of bearer tokens, BasicFile one of users with bcrypt hashes (htpasswd).
	// Empty: none.
	TokenFile, BasicFile string

	// UserHeader is the header in which a proxy names the user. It counts only in requests
	// that come from TrustedProxies. Both or none must be set.
	UserHeader     string
	TrustedProxies []netip.Prefix

	// OIDC logs people in. Nil: no provider does.
	OIDC Provider

	// Insecure admits every request. It cannot be combined with a way to log in.
	Insecure bool

	// Local is the user of all requests if the server listens on a loopback address and needs no
	// login, like "alice@laptop".
	Local string

	// Logger logs logins, and credentials that were refused. Nil: nothing is logged.
	Logger *slog.Logger
}

// Provider logs people in with OpenID Connect; *oidc.Provider implements it.
type Provider interface {
	// Begin returns the URL at which a person logs in, and a secret of this login, which the
	// browser must bring back.
	Begin(ctx context.Context, redirect string) (location, secret string, err error)

	// Finish returns the person that has logged in.
	Finish(ctx context.Context, redirect, secret string, answer url.Values) (user string, err error)

	// Bearer returns the user of an ID token.
	Bearer(ctx context.Context, token string) (user string, err error)

	// Key is a secret that all replicas share, with which sessions are signed.
	Key() string
}

// Guard admits only requests whose user it can identify, unless the server needs no login. It is
// safe for concurrent use.
type Guard struct {
	cfg     Config
	methods []method
	tokens  *tokens // nil: no file of tokens
	hosts   hosts
	log     *slog.Logger
}

// method is a way to identify the user of a request.
type method struct {
	// user returns the user. It returns "" if the request has no credentials of this
	// method, and an error if it has wrong ones.
	user func(r *http.Request) (string, error)

	// challenge is the value of WWW-Authenticate. "": none.
	challenge string
}

const (
	bearerChallenge = `Bearer realm="cronce"`
	basicChallenge  = `Basic realm="cronce", charset="UTF-8"`
)

// New checks the configuration and reads its files.
func New(cfg Config) (*Guard, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	g := &Guard{cfg: cfg, log: cfg.Logger, hosts: newHosts(cfg.Listen, cfg.URL)}
	if (cfg.UserHeader == "") != (len(cfg.TrustedProxies) == 0) {
		return nil, errors.New("--http-user-header and --http-trusted-proxy need each other: the header counts only in requests of the proxy")
	}
	if cfg.UserHeader != "" && !httpguts.ValidHeaderFieldName(cfg.UserHeader) {
		return nil, fmt.Errorf("invalid --http-user-header %q: want the name of a header, like X-Forwarded-User", cfg.UserHeader)
	}
	if cfg.TokenFile != "" {
		var err error
		if g.tokens, err = newTokens(cfg); err != nil {
			return nil, err
		}
		g.methods = append(g.methods, method{g.tokens.user, bearerChallenge})
	}
	if cfg.OIDC != nil {
		g.methods = append(g.methods, method{bearers{cfg.OIDC}.user, bearerChallenge})
	}
	if g.hasLogin() {
		g.methods = append(g.methods, method{user: sessions{g.tokens, cfg.OIDC}.user})
	}
	if cfg.BasicFile != "" {
		p, err := newPasswords(cfg)
		if err != nil {
			return nil, err
		}
		g.methods = append(g.methods, method{p.user, basicChallenge})
	}
	if cfg.UserHeader != "" {
		g.methods = append(g.methods, method{user: proxy{cfg.UserHeader, cfg.TrustedProxies}.user})
	}
	switch {
	case cfg.Insecure && len(g.methods) > 0:
		return nil, errors.New("--http-insecure excludes every way to log in: leave one of them out")
	case len(g.methods) == 0 && !cfg.Insecure && !Loopback(cfg.Listen):
		return nil, fmt.Errorf("cannot serve %s without a login, since other machines reach it: use --http-token-file, --http-basic-file, --http-user-header with --http-trusted-proxy, or --oidc-issuer; or listen on 127.0.0.1; or set --http-insecure", cfg.Listen)
	}
	return g, nil
}

// Loopback reports whether only this machine can reach the address.
func Loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

type userKey struct{}

// User returns the user of a request that Guard let through, and "" for any other.
func User(r *http.Request) string {
	name, _ := r.Context().Value(userKey{}).(string)
	return name
}

func withUser(r *http.Request, name string) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), userKey{}, name))
}

// Wrap returns a handler that serves the login pages and passes the requests of users on to next.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { g.admit(w, r, next) })
	if g.hasLogin() {
		g.addLogin(mux)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.hosts.serve(r.Host) {
			problem.Refuse(w, r, fault.WrongHost, fmt.Sprintf("this server does not serve the host name %q: name it with --http-url, or use the server's address", r.Host))
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// admit calls next if a method identifies the user of the request, and refuses it otherwise.
func (g *Guard) admit(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if len(g.methods) == 0 { // the server needs no login
		if fromOtherSite(r) {
			if isNavigation(r) { // a person follows a link: the request of the page itself is let in
				bounce(w)
				return
			}
			problem.Refuse(w, r, fault.CrossSite, "a page of another site sent the request: open this site's own pages, or use a program other than a browser")
			return
		}
		next.ServeHTTP(w, withUser(r, g.anonymous(r)))
		return
	}
	var refused error
	for _, m := range g.methods {
		name, err := m.user(r)
		if err == nil && name != "" {
			err = checkUser(name)
		}
		switch {
		case err != nil:
			refused = errors.Join(refused, err)
		case name != "":
			next.ServeHTTP(w, withUser(r, name))
			return
		}
	}
	if refused != nil {
		g.log.Warn("credentials refused", "remote", r.RemoteAddr, "path", r.URL.Path, "error", refused)
	}
	g.refuse(w, r, refused)
}

// fromOtherSite reports whether a browser says that a page of another site sent the request. Such a page must
// not use what a person's browser can reach. With a login, the cookie is not sent then.
func fromOtherSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// anonymous names the user of a server that needs no login.
func (g *Guard) anonymous(r *http.Request) string {
	if !g.cfg.Insecure && g.cfg.Local != "" {
		return g.cfg.Local
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = "unknown"
	}
	return "anonymous@" + host
}

// refuse asks the browser of a person to log in, and gives a program a problem document.
func (g *Guard) refuse(w http.ResponseWriter, r *http.Request, refused error) {
	if g.hasLogin() && refused == nil && isNavigation(r) {
		if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
			bounce(w)
			return
		}
		link.Redirect(w, r, "login?next="+url.QueryEscape(r.URL.RequestURI()))
		return
	}
	for _, m := range g.methods {
		if m.challenge != "" {
			w.Header().Add("WWW-Authenticate", m.challenge)
		}
	}
	detail := "the request names no user: send credentials, or log in with a browser"
	switch {
	case errors.Is(refused, errProvider):
		problem.Refuse(w, r, fault.Unavailable, errProvider.Error()+": the log of this server says why")
		return
	case refused != nil:
		detail = "the credentials of the request are not valid here"
	}
	problem.Refuse(w, r, fault.Unauthenticated, detail)
}

// isNavigation reports whether a browser asks for a page.
func isNavigation(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// checkUser refuses names that records and events cannot store.
func checkUser(name string) error {
	if err := job.ValidateToken(name); err != nil {
		return fmt.Errorf("user: %w", err)
	}
	return nil
}

// hosts are the names that a server serves, in lower case.
type hosts map[string]bool

func newHosts(listen string, at *url.URL) hosts {
	h := hosts{"localhost": true}
	if host, _, err := net.SplitHostPort(listen); err == nil && host != "" {
		h[strings.ToLower(host)] = true
	}
	if at != nil {
		h[strings.ToLower(at.Hostname())] = true
	}
	return h
}

// serve reports whether this server answers requests with this Host. It answers those with any IP
// address.
func (h hosts) serve(host string) bool {
	name := host
	if n, _, err := net.SplitHostPort(host); err == nil {
		name = n
	}
	name = strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"), "."))
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return h[name]
}
