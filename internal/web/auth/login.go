package auth

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/web/link"
	"github.com/cronce-io/cronce/internal/web/problem"
)

//go:embed login.html
var loginHTML string

//go:embed login.css
var loginCSS []byte

// loginIcon is a copy of the icon of the pages, which only users get.
//
//go:embed login.svg
var loginIcon []byte

var loginPage = template.Must(template.New("login").Parse(loginHTML))

// hasLogin reports whether a person can log in with a browser on a page of this server.
func (g *Guard) hasLogin() bool { return g.tokens != nil || g.cfg.OIDC != nil }

func (g *Guard) addLogin(mux *http.ServeMux) {
	mux.HandleFunc("GET /login", func(w http.ResponseWriter, r *http.Request) {
		g.showLogin(w, r, http.StatusOK, r.FormValue("next"), "")
	})
	for name, file := range map[string]struct {
		media string
		data  []byte
	}{"style.css": {"text/css; charset=utf-8", loginCSS}, "icon.svg": {"image/svg+xml", loginIcon}} {
		mux.HandleFunc("GET /login/"+name, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", file.media)
			_, _ = w.Write(file.data)
		})
	}
	mux.HandleFunc("POST /logout", func(w http.ResponseWriter, r *http.Request) {
		g.setCookie(w, r, link.SessionCookie, "", -time.Second, http.SameSiteStrictMode)
		link.Redirect(w, r, "login")
	})
	if g.tokens != nil {
		mux.HandleFunc("POST /login", g.loginWithToken)
	}
	if g.cfg.OIDC != nil {
		mux.HandleFunc("GET /login/oidc", g.beginOIDC)
		mux.HandleFunc("GET /login/callback", g.finishOIDC)
	}
}

func (g *Guard) showLogin(w http.ResponseWriter, r *http.Request, status int, next, wrong string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = loginPage.Execute(w, struct { // fails only if the client is gone
		Token, OIDC       bool
		Root, Next, Wrong string
	}{g.tokens != nil, g.cfg.OIDC != nil, link.Root(r), next, wrong})
}

func (g *Guard) loginWithToken(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 16<<10)
	if err := r.ParseForm(); err != nil {
		problem.Refuse(w, r, fault.Invalid, "read the form: "+err.Error())
		return
	}
	name := g.tokens.owner(r.PostForm.Get("token"))
	if name == "" {
		g.log.Warn("login refused", "remote", r.RemoteAddr)
		g.showLogin(w, r, http.StatusUnauthorized, r.PostForm.Get("next"), "That is not a valid token.")
		return
	}
	g.logIn(w, r, session{User: name, By: "token"}, g.tokens.file.Get()[name], r.PostForm.Get("next"))
}

// logIn sets the cookie, and sends the browser to the page that it wanted.
func (g *Guard) logIn(w http.ResponseWriter, r *http.Request, s session, key, next string) {
	s.Ends = time.Now().Add(sessionTime)
	g.setCookie(w, r, link.SessionCookie, s.seal(key), sessionTime, http.SameSiteStrictMode)
	g.log.Info("user logged in", "user", s.User, "with", s.By, "remote", r.RemoteAddr)
	if next = link.Local(next); strings.HasPrefix(next, "login") {
		next = "" // this page
	}
	link.Redirect(w, r, next)
}

const providerAway = "The OpenID provider does not answer. Try again later."

// readLogin returns what beginOIDC has stored in the login cookie.
func readLogin(r *http.Request) (secret, next string, err error) {
	c, err := r.Cookie(loginCookie)
	if err != nil {
		return "", "", fmt.Errorf("this browser began no login in the last %v: log in again", loginTime)
	}
	v, err := url.ParseQuery(c.Value)
	return v.Get("secret"), v.Get("next"), err
}

// maxNext bounds the page in the login cookie, escaped. A browser drops a cookie of more than 4 KB, and
// the login would fail. After a login that wanted a longer address, the browser goes to the first page.
const maxNext = 2 << 10

func (g *Guard) beginOIDC(w http.ResponseWriter, r *http.Request) {
	location, secret, err := g.cfg.OIDC.Begin(r.Context(), g.callback(r))
	if err != nil {
		g.log.Error("OpenID login failed", "error", err)
		g.showLogin(w, r, http.StatusServiceUnavailable, r.FormValue("next"), providerAway)
		return
	}
	next := url.QueryEscape(r.FormValue("next"))
	if len(next) > maxNext {
		next = ""
	}
	// The cookie must be Lax: the provider, which is another site, sends the browser back, and a
	// browser sends no Strict cookie then.
	g.setCookie(w, r, loginCookie, "secret="+url.QueryEscape(secret)+"&next="+next, loginTime, http.SameSiteLaxMode)
	w.Header().Set("Location", location)
	w.WriteHeader(http.StatusSeeOther)
}

func (g *Guard) finishOIDC(w http.ResponseWriter, r *http.Request) {
	secret, next, err := readLogin(r)
	var user string
	if err == nil {
		user, err = g.cfg.OIDC.Finish(r.Context(), g.callback(r), secret, r.URL.Query())
	}
	if err == nil {
		err = checkUser(user)
	}
	g.setCookie(w, r, loginCookie, "", -time.Second, http.SameSiteLaxMode)
	if err != nil {
		g.log.Warn("OpenID login refused", "remote", r.RemoteAddr, "error", err)
		status, wrong := http.StatusUnauthorized, "The login failed. The log of the server says why."
		if errors.Is(err, errProvider) {
			status, wrong = http.StatusServiceUnavailable, providerAway
		}
		g.showLogin(w, r, status, next, wrong)
		return
	}
	g.logIn(w, r, session{User: user, By: "oidc"}, g.cfg.OIDC.Key(), next)
}

// callback is the URL to which the provider sends the browser back.
func (g *Guard) callback(r *http.Request) string {
	if g.cfg.URL != nil {
		return g.cfg.URL.JoinPath("login/callback").String()
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host + "/login/callback"
}

func (g *Guard) setCookie(w http.ResponseWriter, r *http.Request, name, value string, lasts time.Duration, site http.SameSite) {
	c := &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: int(lasts / time.Second), HttpOnly: true, SameSite: site, Secure: r.TLS != nil}
	if at := g.cfg.URL; at != nil {
		c.Secure = c.Secure || at.Scheme == "https"
		if at.Path != "" {
			c.Path = cmp.Or(strings.TrimSuffix(at.Path, "/"), "/")
		}
	}
	http.SetCookie(w, c)
}

// bounce answers a browser that followed a link from another site with a page that reloads
// itself. The browser sends the cookie then.
func bounce(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Refresh", "0")
	_, _ = w.Write([]byte("<!doctype html><html lang=\"en\"><title>Cronce</title><p><a href=\"\">Continue</a></p></html>\n"))
}

const (
	// loginCookie holds the secret of a login at the OpenID provider, and the page to go to
	// afterwards. link.SessionCookie holds a browser's session.
	loginCookie = "cronce_login"

	// sessionTime is how long a login lasts.
	sessionTime = 12 * time.Hour

	// loginTime is how long a person may take at the OpenID provider.
	loginTime = 10 * time.Minute
)

// session is what the cookie holds, signed.
type session struct {
	User string    `json:"user"`
	By   string    `json:"by"` // "token" or "oidc": whose key signed it
	Ends time.Time `json:"ends"`
}

// seal signs a session. The key is the user's token, or the secret of the client.
func (s session) seal(key string) string {
	data, err := json.Marshal(s)
	if err != nil {
		return "" // strings and a time can always be encoded
	}
	body := base64.RawURLEncoding.EncodeToString(data)
	return body + "." + base64.RawURLEncoding.EncodeToString(sign(key, body))
}

func sign(key, body string) []byte {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte("cronce session 1\n" + body))
	return mac.Sum(nil)
}

// unseal returns the session if its signature is valid and it has not expired. key returns the
// key with which a session must be signed; its argument is not verified yet.
func unseal(sealed string, key func(session) string, now time.Time) (session, error) {
	var s session
	body, mark, _ := strings.Cut(sealed, ".")
	data, err := base64.RawURLEncoding.DecodeString(body)
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		return session{}, errors.New("session: not one of this server")
	}
	k := key(s)
	got, err := base64.RawURLEncoding.DecodeString(mark)
	switch {
	case err != nil || k == "" || !hmac.Equal(got, sign(k, body)):
		return session{}, errors.New("session: not one of this server")
	case !now.Before(s.Ends):
		return session{}, errors.New("session: it has expired")
	}
	return s, nil
}

// sessions identifies users by their cookie. A cookie that is not valid counts as none, so
// that the browser gets the login page.
type sessions struct {
	tokens *tokens
	oidc   Provider
}

func (m sessions) user(r *http.Request) (string, error) {
	c, err := r.Cookie(link.SessionCookie)
	if err != nil {
		return "", nil
	}
	s, err := unseal(c.Value, m.key, time.Now())
	if err != nil {
		return "", nil
	}
	return s.User, nil
}

func (m sessions) key(s session) string {
	switch {
	case s.By == "token" && m.tokens != nil:
		return m.tokens.file.Get()[s.User]
	case s.By == "oidc" && m.oidc != nil:
		return m.oidc.Key()
	}
	return ""
}

// bearers identifies programs by an ID token of the provider.
type bearers struct{ oidc Provider }

// errProvider means that the OpenID provider did not answer.
var errProvider = errors.New("the OpenID provider does not answer")

// Unreachable marks an error of a Provider: the provider could not be reached, so the credentials
// were not checked.
func Unreachable(err error) error { return fmt.Errorf("%w: %w", errProvider, err) }

func (m bearers) user(r *http.Request) (string, error) {
	token, ok := bearer(r)
	if !ok || strings.Count(token, ".") != 2 {
		return "", nil // not a JWT
	}
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	return m.oidc.Bearer(ctx, token)
}
