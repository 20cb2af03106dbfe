package secure_test

import (
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/web/secure"
)

func TestRequestsOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	orders := 0
	h := secure.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { orders++ }))
	for _, tc := range []struct {
		method, header, value string
		want                  int
	}{
		{"POST", "Sec-Fetch-Site", "cross-site", 403},
		{"DELETE", "Sec-Fetch-Site", "same-site", 403},
		{"PUT", "Origin", "https://evil.example", 403},
		{"POST", "Origin", "null", 403},
		{"POST", "Sec-Fetch-Site", "same-origin", 200},
		{"POST", "Origin", "http://cronce.example", 200},
		{"POST", "User-Agent", "curl/8", 200},
		{"GET", "Sec-Fetch-Site", "cross-site", 200},
	} {
		orders = 0
		r := httptest.NewRequest(tc.method, "http://cronce.example/api/v1/jobs/a:pause", nil)
		r.Header.Set(tc.header, tc.value)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tc.want || (orders == 1) != (tc.want == 200) {
			t.Errorf("%s with %s %s: status %d, want %d; passed on %d times", tc.method, tc.header, tc.value, w.Code, tc.want, orders)
		}
		if tc.want == 403 && w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("refused with %v", w.Header())
		}
		for _, name := range []string{"Content-Security-Policy", "X-Content-Type-Options", "X-Frame-Options", "Referrer-Policy"} {
			if w.Header().Get(name) == "" {
				t.Errorf("status %d has no %s", w.Code, name)
			}
		}
		if p := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(p, "default-src 'none';") || strings.Contains(p, "unsafe") {
			t.Errorf("content policy %q", p)
		}
	}
}

func TestBodiesAreBounded(t *testing.T) {
	t.Parallel()
	h := secure.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Logf("cut after %d bytes: %v", n, err)
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	}))
	for _, tc := range []struct {
		bytes  int
		length bool
		want   int
	}{{secure.MaxBody, true, 200}, {secure.MaxBody + 1, true, 413}, {secure.MaxBody, false, 200}, {secure.MaxBody + 1, false, 413}} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", tc.bytes)))
		if !tc.length {
			r.ContentLength = -1
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != tc.want {
			t.Errorf("%d bytes, length sent: %v: status %d, want %d", tc.bytes, tc.length, w.Code, tc.want)
		}
	}
}

// A browser gets a page that needs nothing that its content policy forbids.
func TestBrowserGetsAPageThatSaysWhyItWasRefused(t *testing.T) {
	t.Parallel()
	h := secure.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was passed on") }))
	for _, tc := range []struct {
		site, body string
		want       int
		says       string
	}{
		{"cross-site", "", 403, "a page of another site sent the request"},
		{"same-origin", strings.Repeat("x", secure.MaxBody+1), 413, "more than 1 MiB"},
	} {
		r := httptest.NewRequest(http.MethodPost, "http://cronce.example/jobs/report/pause", strings.NewReader(tc.body))
		r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
		r.Header.Set("Sec-Fetch-Site", tc.site)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		body, policy := w.Body.String(), w.Header().Get("Content-Security-Policy")
		if w.Code != tc.want || !strings.Contains(body, tc.says) || w.Header().Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("%d %v: %s", w.Code, w.Header(), body)
		}
		_, style, _ := strings.Cut(body, "<style>")
		style, _, _ = strings.Cut(style, "</style>")
		sum := sha256.Sum256([]byte(style))
		if !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"';") || strings.Contains(body, "<script") {
			t.Errorf("the policy %q does not allow the page: %s", policy, body)
		}
	}
}

// A proxy strips the path below which it serves the pages. http.ServeMux does not know that path.
func TestRedirectsStayBelowThePathOfAProxy(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/api/v1/", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/login", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://id.example/auth", http.StatusSeeOther)
	})
	h := http.StripPrefix("/ops/cronce", secure.Wrap(secure.Wrap(mux)))
	for path, want := range map[string]string{
		"/api/v1":          "/ops/cronce/api/v1/",
		"/api/v1?a=b":      "/ops/cronce/api/v1/?a=b",
		"//jobs":           "/ops/cronce/jobs",
		"///example.com/a": "/ops/cronce/example.com/a",
		"/jobs/../nodes":   "/ops/cronce/nodes",
		"/jobs/./a/../../": "/ops/cronce/",
		"/jobs/..//nodes":  "/ops/cronce/nodes",
		"/login":           "https://id.example/auth",
	} {
		r := httptest.NewRequest(http.MethodGet, "/ops/cronce"+path, nil)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		to, err := r.URL.Parse(w.Header().Get("Location"))
		if err != nil || w.Code < 300 || w.Code > 399 || to.String() != want {
			t.Errorf("GET %s: %d to %s (%q), %v; want %s", path, w.Code, to, w.Header().Get("Location"), err, want)
		}
	}
}
