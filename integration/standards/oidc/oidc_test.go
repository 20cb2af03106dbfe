package oidc_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oauth2-proxy/mockoidc"

	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/web/auth"
	"github.com/cronce-io/cronce/internal/web/auth/oidc"
)

func secretFile(t *testing.T, secret string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	filetest.Write(t, path, secret+"\n")
	return path
}

// site is a server whose users log in at a provider.
func site(t *testing.T, p *oidc.Provider) *httptest.Server {
	t.Helper()
	g, err := auth.New(auth.Config{Listen: "0.0.0.0:80", OIDC: p})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "user %s at %s", auth.User(r), r.URL) })))
	t.Cleanup(s.Close)
	return s
}

func provider(t *testing.T) (*mockoidc.MockOIDC, *oidc.Provider) {
	t.Helper()
	m, err := mockoidc.Run()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Shutdown() })
	p, err := oidc.New(m.Issuer(), m.ClientID, secretFile(t, m.ClientSecret))
	if err != nil {
		t.Fatal(err)
	}
	return m, p
}

func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar}
}

func get(t *testing.T, b *http.Client, address string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w, err := b.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.StatusCode, string(body)
}

func TestPersonLogsInAtTheProvider(t *testing.T) {
	t.Parallel()
	m, p := provider(t)
	s := site(t, p)
	m.QueueUser(&mockoidc.MockUser{Subject: "1", Email: "alice@example.com", EmailVerified: true, PreferredUsername: "alice"})
	b := browser(t)
	if code, page := get(t, b, s.URL+"/jobs?q=x", "Accept", "text/html"); code != 200 || !strings.Contains(page, "login/oidc?next=%2fjobs%3fq%3dx") {
		t.Fatalf("login page: %d\n%s", code, page)
	}
	if code, page := get(t, b, s.URL+"/login/oidc?next=%2Fjobs%3Fq%3Dx"); code != 200 || page != "user alice@example.com at /jobs?q=x" {
		t.Fatalf("login: %d\n%s", code, page)
	}
	m.QueueUser(&mockoidc.MockUser{Subject: "1", Email: "alice@example.com", EmailVerified: true})
	if code, page := get(t, browser(t), s.URL+"/login/oidc?next=/"+strings.Repeat("%C3%A4", 1000)); code != 200 || page != "user alice@example.com at /" {
		t.Errorf("login that wants an address too long for a cookie: %d\n%s", code, page)
	}
	// Another replica with the same files, and without state.
	again, err := oidc.New(m.Issuer(), m.ClientID, secretFile(t, m.ClientSecret))
	if err != nil {
		t.Fatal(err)
	}
	other := site(t, again)
	here, _ := url.Parse(s.URL)
	r, _ := http.NewRequest(http.MethodGet, other.URL+"/", nil)
	for _, c := range b.Jar.Cookies(here) {
		r.AddCookie(c)
	}
	w, err := http.DefaultClient.Do(r)
	if err != nil || w.StatusCode != 200 {
		t.Errorf("other replica: %v, %v", w, err)
	}
	w.Body.Close()
	// The keys are rotated between two logins.
	if m.Keypair, err = mockoidc.RandomKeypair(2048); err != nil {
		t.Fatal(err)
	}
	m.QueueUser(&mockoidc.MockUser{Subject: "2", Email: "eve@example.com", EmailVerified: false, PreferredUsername: "eve"})
	if code, page := get(t, browser(t), s.URL+"/login/oidc"); code != 200 || page != "user eve at /" {
		t.Errorf("login after a rotation, address not verified: %d\n%s", code, page)
	}
}

func TestProgramSendsAnIDToken(t *testing.T) {
	t.Parallel()
	m, p := provider(t)
	s := site(t, p)
	token := func(audience string, ends time.Time) string {
		raw, err := m.Keypair.SignJWT(jwt.MapClaims{"iss": m.Issuer(), "sub": "robot", "aud": audience, "exp": ends.Unix(), "iat": time.Now().Unix()})
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	hour := time.Now().Add(time.Hour)
	good := token(m.ClientID, hour)
	for name, tc := range map[string]struct {
		token string
		want  int
	}{
		"good":              {good, 200},
		"other audience":    {token("another", hour), 401},
		"expired":           {token(m.ClientID, time.Now().Add(-time.Hour)), 401},
		"changed":           {good[:len(good)-4] + "AAAA", 401},
		"not a JWT":         {"abcdefghijklmnopqrstuvwxyz", 401},
		"without algorithm": {"eyJhbGciOiJub25lIn0." + strings.Split(good, ".")[1] + ".", 401},
	} {
		if code, body := get(t, http.DefaultClient, s.URL+"/api/v1/jobs", "Authorization", "Bearer "+tc.token); code != tc.want || code == 200 && body != "user robot at /api/v1/jobs" {
			t.Errorf("%s: %d %s, want %d", name, code, body, tc.want)
		}
	}
}

func TestLoginThatThisBrowserDidNotBeginIsRefused(t *testing.T) {
	t.Parallel()
	_, p := provider(t)
	s := site(t, p)
	// The attacker begins a login, and sends the victim the answer.
	stop := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	w, err := stop.Get(s.URL + "/login/oidc")
	if err != nil {
		t.Fatal(err)
	}
	w.Body.Close()
	at, _ := w.Location()
	if w, err = stop.Get(at.String()); err != nil {
		t.Fatal(err)
	}
	w.Body.Close()
	answer, _ := w.Location()
	if code, page := get(t, browser(t), answer.String()); code != 401 || !strings.Contains(page, "login failed") || strings.Contains(page, "user ") {
		t.Errorf("no login begun: %d\n%s", code, page)
	}
	victim := browser(t)
	victim.CheckRedirect = stop.CheckRedirect
	get(t, victim, s.URL+"/login/oidc")
	if code, _ := get(t, victim, answer.String()); code != 401 {
		t.Errorf("another login begun: %d", code)
	}
}

func TestProviderThatIsAwayDoesNotStopTheServer(t *testing.T) {
	t.Parallel()
	dead := httptest.NewServer(http.NotFoundHandler())
	issuer := dead.URL
	dead.Close()
	p, err := oidc.New(issuer, "cronce", secretFile(t, "0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	s := site(t, p)
	if code, page := get(t, browser(t), s.URL+"/login/oidc"); code != 503 || !strings.Contains(page, "does not answer") {
		t.Errorf("login: %d\n%s", code, page)
	}
	if code, body := get(t, http.DefaultClient, s.URL+"/api/v1/jobs", "Authorization", "Bearer a.b.c"); code != 503 || !strings.Contains(body, "unavailable") {
		t.Errorf("token: %d\n%s", code, body)
	}
}

func TestKeysThatCannotBeReadAreNoFaultOfTheCredentials(t *testing.T) {
	t.Parallel()
	m, p := provider(t)
	s := site(t, p)
	send := func(token string) (int, string) {
		return get(t, http.DefaultClient, s.URL+"/api/v1/jobs", "Authorization", "Bearer "+token)
	}
	if code, body := send("a.b.c"); code != 401 { // reads the configuration
		t.Fatalf("not a token: %d\n%s", code, body)
	}
	away := &mockoidc.ServerError{Code: http.StatusServiceUnavailable, Error: "away", Description: "secret"}
	for _, answer := range []*mockoidc.ServerError{nil, nil, nil, away} { // the login page, the tokens in two ways, the keys
		m.QueueError(answer)
	}
	if code, page := get(t, browser(t), s.URL+"/login/oidc"); code != 503 || !strings.Contains(page, "does not answer") {
		t.Errorf("login: %d\n%s", code, page)
	}
	raw, err := m.Keypair.SignJWT(jwt.MapClaims{"iss": m.Issuer(), "sub": "robot", "aud": m.ClientID, "exp": time.Now().Add(time.Hour).Unix()})
	if err != nil {
		t.Fatal(err)
	}
	m.QueueError(away)
	if code, body := send(raw); code != 503 || !strings.Contains(body, "unavailable") || strings.Contains(body, "secret") {
		t.Errorf("token: %d\n%s", code, body)
	}
	if code, body := send(raw); code != 200 {
		t.Errorf("token, with keys: %d\n%s", code, body)
	}
}

func TestProviderThatGoesAwayDuringALoginIsNoFaultOfTheCredentials(t *testing.T) {
	t.Parallel()
	m, p := provider(t)
	s := site(t, p)
	away := &mockoidc.ServerError{Code: http.StatusServiceUnavailable, Error: "away"}
	for _, answer := range []*mockoidc.ServerError{nil, nil, away, away} { // the configuration, the login page, the tokens in two ways
		m.QueueError(answer)
	}
	if code, page := get(t, browser(t), s.URL+"/login/oidc"); code != 503 || !strings.Contains(page, "does not answer") {
		t.Errorf("provider that cannot answer: %d\n%s", code, page)
	}
	b := browser(t)
	b.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if strings.HasSuffix(r.URL.Path, "/login/callback") {
			return m.Shutdown()
		}
		return nil
	}
	if code, page := get(t, b, s.URL+"/login/oidc"); code != 503 || !strings.Contains(page, "does not answer") {
		t.Errorf("provider that is down: %d\n%s", code, page)
	}
}

func TestWrongSettingsAreKnownAtTheStart(t *testing.T) {
	t.Parallel()
	good := secretFile(t, "0123456789abcdef")
	for _, tc := range []struct{ issuer, client, file, says string }{
		{"login.example.com", "c", good, "invalid --oidc-issuer"},
		{"http://login.example.com", "c", good, "invalid --oidc-issuer"},
		{"https://login.example.com", "", good, "--oidc-client-id"},
		{"https://login.example.com", "c", "", "--oidc-client-secret-file"},
		{"https://login.example.com", "c", good + "x", "no such file"},
		{"https://login.example.com", "c", secretFile(t, "short"), "at least 16"},
	} {
		if _, err := oidc.New(tc.issuer, tc.client, tc.file); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%v: error %v", tc, err)
		}
	}
}
