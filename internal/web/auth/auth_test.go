package auth_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/web/auth"
	"github.com/cronce-io/cronce/internal/web/secure"
)

const (
	aliceToken = "alice-0123456789abcdef"
	botToken   = "bot-0123456789abcdef=="
)

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	filetest.Write(t, path, text)
	return path
}

func hash(t *testing.T, password string) string {
	t.Helper()
	h, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(h)
}

// guarded serves the name of the user.
func guarded(t *testing.T, cfg auth.Config) http.Handler {
	t.Helper()
	g, err := auth.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return secure.Wrap(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "user %s at %s", auth.User(r), r.URL)
	})))
}

func TestAServerThatOthersReachNeedsALogin(t *testing.T) {
	t.Parallel()
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	tokens, users := file(t, aliceToken), file(t, "alice:"+hash(t, "secret"))
	for _, tc := range []struct {
		name string
		cfg  auth.Config
		says string // "": starts
	}{
		{"loopback", auth.Config{Listen: "127.0.0.1:8080"}, ""},
		{"loopback of IPv6", auth.Config{Listen: "[::1]:8080"}, ""},
		{"localhost", auth.Config{Listen: "localhost:8080"}, ""},
		{"all addresses", auth.Config{Listen: ":8080"}, "without a login"},
		{"all addresses of IPv4", auth.Config{Listen: "0.0.0.0:8080"}, "--http-token-file"},
		{"another address", auth.Config{Listen: "10.1.2.3:8080"}, "--http-insecure"},
		{"a name", auth.Config{Listen: "cronce.example:8080"}, "--oidc-issuer"},
		{"insecure", auth.Config{Listen: ":8080", Insecure: true}, ""},
		{"insecure and a login", auth.Config{Listen: ":8080", Insecure: true, TokenFile: tokens}, "--http-insecure excludes"},
		{"tokens", auth.Config{Listen: ":8080", TokenFile: tokens}, ""},
		{"no file", auth.Config{Listen: ":8080", TokenFile: tokens + "x"}, "--http-token-file: open"},
		{"empty file", auth.Config{Listen: ":8080", TokenFile: file(t, "# none\n\n")}, "holds no token"},
		{"short token", auth.Config{Listen: ":8080", TokenFile: file(t, "\nbob:short")}, ":2: want USER:TOKEN"},
		{"two tokens of a user", auth.Config{Listen: ":8080", TokenFile: file(t, aliceToken+"\n"+botToken)}, "has a token already"},
		{"user with a control character", auth.Config{Listen: ":8080", TokenFile: file(t, "b\x01b:"+botToken)}, "control character"},
		{"passwords", auth.Config{Listen: ":8080", BasicFile: users}, ""},
		{"weak hash", auth.Config{Listen: ":8080", BasicFile: file(t, "bob:$apr1$x$y")}, ":1: want USER:HASH with a bcrypt hash"},
		{"plain password", auth.Config{Listen: ":8080", BasicFile: file(t, "bob:geheim")}, "htpasswd -B"},
		{"proxy", auth.Config{Listen: ":8080", UserHeader: "X-User", TrustedProxies: proxies}, ""},
		{"header that is no name", auth.Config{Listen: ":8080", UserHeader: "X User", TrustedProxies: proxies}, `invalid --http-user-header "X User"`},
		{"header without a proxy", auth.Config{Listen: ":8080", UserHeader: "X-User"}, "need each other"},
		{"proxy without a header", auth.Config{Listen: "127.0.0.1:1", TrustedProxies: proxies}, "need each other"},
	} {
		_, err := auth.New(tc.cfg)
		switch {
		case tc.says == "" && err != nil:
			t.Errorf("%s: %v", tc.name, err)
		case tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)):
			t.Errorf("%s: error %v, want one on %q", tc.name, err, tc.says)
		case err != nil && (strings.Contains(err.Error(), "geheim") || strings.Contains(err.Error(), "short")):
			t.Errorf("%s: the error quotes a secret: %v", tc.name, err)
		}
	}
}

func TestUserOfARequest(t *testing.T) {
	t.Parallel()
	h := guarded(t, auth.Config{
		Listen: "0.0.0.0:80", TokenFile: file(t, "alice:"+aliceToken+"\n# a robot\nbot:"+botToken+"\n"),
		BasicFile:  file(t, "bob:"+hash(t, "pass:word")+"\n"),
		UserHeader: "X-Forwarded-User", TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")},
	})
	with := func(name string, values ...string) http.Header { return http.Header{name: values} }
	basic := func(user, password string) http.Header {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.SetBasicAuth(user, password)
		return r.Header
	}
	for _, tc := range []struct {
		name   string
		header http.Header
		remote string
		user   string // "": refused
	}{
		{"nothing", http.Header{}, "10.0.0.1:1", ""},
		{"token", with("Authorization", "Bearer "+aliceToken), "192.0.2.1:1", "alice"},
		{"token, lower case scheme", with("Authorization", "bearer "+botToken), "192.0.2.1:1", "bot"},
		{"wrong token", with("Authorization", "Bearer "+aliceToken+"x"), "192.0.2.1:1", ""},
		{"empty token", with("Authorization", "Bearer "), "192.0.2.1:1", ""},
		{"password", basic("bob", "pass:word"), "192.0.2.1:1", "bob"},
		{"password again", basic("bob", "pass:word"), "192.0.2.1:1", "bob"},
		{"wrong password", basic("bob", "pass"), "192.0.2.1:1", ""},
		{"unknown user", basic("eve", "pass:word"), "192.0.2.1:1", ""},
		{"unknown user, the password that an unknown user is compared with", basic("eve", "unused"), "192.0.2.1:1", ""},
		{"proxy", with("X-Forwarded-User", "carol@example.com"), "10.9.9.9:1", "carol@example.com"},
		{"proxy of IPv6", with("X-Forwarded-User", "carol"), "[::1]:1", "carol"},
		{"mapped address", with("X-Forwarded-User", "carol"), "[::ffff:10.0.0.1]:1", "carol"},
		{"no proxy", with("X-Forwarded-User", "carol"), "192.0.2.1:1", ""},
		{"two users", with("X-Forwarded-User", "carol", "root"), "10.0.0.1:1", ""},
		{"user with a control character", with("X-Forwarded-User", "a\x1bb"), "10.0.0.1:1", ""},
		{"made up session", with("Cookie", "cronce_session=e30.AAAA"), "192.0.2.1:1", ""},
	} {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/jobs", nil)
		r.Header, r.RemoteAddr, r.Host = tc.header, tc.remote, "192.0.2.7"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		switch {
		case tc.user != "" && (w.Code != 200 || w.Body.String() != "user "+tc.user+" at /api/v1/jobs"):
			t.Errorf("%s: %d %s, want user %s", tc.name, w.Code, w.Body, tc.user)
		case tc.user == "" && (w.Code != 401 || w.Header().Get("Content-Type") != "application/problem+json" || len(w.Header().Values("WWW-Authenticate")) != 2):
			t.Errorf("%s: %d %v %s, want a problem document and 2 challenges", tc.name, w.Code, w.Header(), w.Body)
		}
	}
}

func TestHostNamesOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	at, _ := url.Parse("https://ops.example.com/cronce")
	h := guarded(t, auth.Config{Listen: "127.0.0.1:8080", URL: at, Local: "me@laptop"})
	for host, want := range map[string]int{
		"127.0.0.1:8080": 200, "localhost:8080": 200, "LOCALHOST": 200, "[::1]:8080": 200, "10.1.2.3": 200, "ops.example.com": 200, "ops.example.com.:443": 200,
		"evil.example:8080": 421, "": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421, "ops.example.com@evil.example": 421,
	} {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/jobs", nil)
		r.Host = host
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("host %q: status %d, want %d", host, w.Code, want)
		}
		if want == 200 && !strings.Contains(w.Body.String(), "me@laptop") {
			t.Errorf("host %q: %s", host, w.Body)
		}
	}
}

// browser keeps cookies, and does not follow redirects.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func open(t *testing.T, b *http.Client, address, site string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html,application/xhtml+xml")
	r.Header.Set("Sec-Fetch-Site", site)
	return done(t, b, r)
}

func done(t *testing.T, b *http.Client, r *http.Request) (*http.Response, string) {
	t.Helper()
	w, err := b.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w, string(body)
}

func TestBrowserLogsInWithATokenAndGetsThePageThatItWanted(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	tokens := file(t, "alice:"+aliceToken)
	h := guarded(t, auth.Config{Listen: ":80", TokenFile: tokens, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	// Behind a proxy that removes a prefix.
	server := httptest.NewServer(http.StripPrefix("/ops/cronce", h))
	defer server.Close()
	b := browser(t)
	w, _ := open(t, b, server.URL+"/ops/cronce/slots/report:2026-11-21T07:00:00Z?zone=UTC", "none")
	at, err := w.Location()
	if err != nil || w.StatusCode != 303 || at.Path != "/ops/cronce/login" {
		t.Fatalf("status %d, location %v, %v", w.StatusCode, at, err)
	}
	w, page := open(t, b, at.String(), "none")
	if w.StatusCode != 200 || !strings.Contains(page, `type="password"`) || strings.Contains(page, "<script") {
		t.Fatalf("login page: %d\n%s", w.StatusCode, page)
	}
	for _, m := range regexp.MustCompile(`<link [^>]*href="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		to, err := at.Parse(m[1])
		if err != nil {
			t.Fatal(err)
		}
		if w, data := open(t, b, to.String(), "same-origin"); w.StatusCode != 200 || len(data) == 0 {
			t.Errorf("%s of the login page: %d", to, w.StatusCode)
		}
	}
	if !strings.Contains(page, `<link rel="icon"`) {
		t.Error("the login page has no icon: a browser asks for /favicon.ico")
	}
	send := func(token, next string) (*http.Response, string) {
		r, err := http.NewRequest(http.MethodPost, server.URL+"/ops/cronce/login", strings.NewReader(url.Values{"token": {token}, "next": {next}}.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return done(t, b, r)
	}
	if w, page = send("wrong", `"><script>`); w.StatusCode != 401 || !strings.Contains(page, "not a valid token") || strings.Contains(page, `"><script>`) {
		t.Errorf("wrong token: %d\n%s", w.StatusCode, page)
	}
	for _, next := range []string{"https://evil.example/", "//evil.example/", `/\evil.example`, "javascript:alert(1)", "/slots/report:2026-11-21T07:00:00Z?zone=UTC"} {
		w, _ = send(aliceToken, next)
		at, err := w.Location()
		if err != nil || w.StatusCode != 303 || !strings.HasPrefix(at.String(), server.URL+"/ops/cronce/") {
			t.Errorf("after a login that wants %q: status %d, location %v, %v", next, w.StatusCode, at, err)
		}
	}
	if at, _ := w.Location(); at.String() != server.URL+"/ops/cronce/slots/report:2026-11-21T07:00:00Z?zone=UTC" {
		t.Errorf("location %v", at)
	}
	c := w.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || strings.Contains(c.Value, aliceToken) {
		t.Errorf("cookie %v", c)
	}
	if w, page = open(t, b, server.URL+"/ops/cronce/", "none"); w.StatusCode != 200 || !strings.HasPrefix(page, "user alice") {
		t.Errorf("logged in: %d %s", w.StatusCode, page)
	}
	// A forged session: another user with the same signature.
	forged := &http.Cookie{Name: c.Name, Value: strings.Replace(c.Value, c.Value[:10], "eyJ1c2VyIj", 1) + "x"}
	r, _ := http.NewRequest(http.MethodGet, server.URL+"/ops/cronce/api/v1/jobs", nil)
	r.AddCookie(forged)
	if w, page = done(t, http.DefaultClient, r); w.StatusCode != 401 {
		t.Errorf("forged session: %d %s", w.StatusCode, page)
	}
	r, _ = http.NewRequest(http.MethodPost, server.URL+"/ops/cronce/logout", nil)
	if w, _ = done(t, b, r); w.StatusCode != 303 {
		t.Errorf("logout: %d", w.StatusCode)
	}
	if w, _ = open(t, b, server.URL+"/ops/cronce/", "none"); w.StatusCode != 303 {
		t.Errorf("after logout: %d", w.StatusCode)
	}
	if strings.Contains(log.String(), aliceToken) || !strings.Contains(log.String(), "user logged in") || !strings.Contains(log.String(), "login refused") {
		t.Errorf("log:\n%s", log.String())
	}
}

// A browser does not send a strict cookie when a person follows a link in a chat.
func TestLinkOfAnotherSiteReloadsItselfInPlaceOfTheLoginPage(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(guarded(t, auth.Config{Listen: ":80", TokenFile: file(t, aliceToken)}))
	defer server.Close()
	b := browser(t)
	w, page := open(t, b, server.URL+"/slots/a:@k", "cross-site")
	if w.StatusCode != 200 || w.Header.Get("Refresh") != "0" || !strings.Contains(page, `<a href="">`) {
		t.Errorf("first: %d %v %s", w.StatusCode, w.Header, page)
	}
	if w, _ = open(t, b, server.URL+"/slots/a:@k", "same-origin"); w.StatusCode != 303 {
		t.Errorf("then: %d", w.StatusCode)
	}
}

// A page of another site makes the browser of a person read what only that browser can reach.
func TestServerWithoutALoginRefusesTheRequestsOfOtherSites(t *testing.T) {
	t.Parallel()
	h := guarded(t, auth.Config{Listen: "127.0.0.1:80", Logger: slog.New(slog.DiscardHandler)})
	for _, tc := range []struct {
		site, accept string
		want         int
		passes       bool
	}{
		{"cross-site", "*/*", http.StatusForbidden, false},
		{"same-site", "application/json", http.StatusForbidden, false}, // another port of this host
		{"cross-site", "text/html", http.StatusOK, false},              // a link: the browser asks again by itself
		{"same-origin", "*/*", http.StatusOK, true},
		{"none", "text/html", http.StatusOK, true}, // a person types the address
		{"", "*/*", http.StatusOK, true},           // a program
	} {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/api/v1/jobs", nil)
		r.Header.Set("Accept", tc.accept)
		if tc.site != "" {
			r.Header.Set("Sec-Fetch-Site", tc.site)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if passed := strings.HasPrefix(w.Body.String(), "user "); w.Code != tc.want || passed != tc.passes {
			t.Errorf("%q asks for %s: %d, passed on: %v: %s", tc.site, tc.accept, w.Code, passed, w.Body)
		}
	}
}
