package httpaction_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/action/httpaction"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/job"
)

func newSecretHandler(t *testing.T, rawURL string, env map[string]string, headers ...spec.Header) (job.Handler, error) {
	t.Helper()
	a := action(t, rawURL)
	a.Headers = headers
	return httpaction.New(a, newTransport(t), func(name string) string { return env[name] })
}

// echo is the URL of a service that answers with the request as it received it.
func echo(t *testing.T, status int) string {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		dump, err := httputil.DumpRequest(r, false)
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(status)
		_, _ = w.Write(dump)
	}).URL
}

func TestSecretsAreSentAndNotKept(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	filetest.Write(t, file, "key-4711\n")
	const password = "pass-w0rd"
	heard := make(chan http.Header, 1)
	service := serve(t, func(w http.ResponseWriter, r *http.Request) {
		heard <- r.Header
		fmt.Fprintln(w, r.Header, base64.StdEncoding.EncodeToString([]byte("key-4711")), password)
	})
	u, err := url.Parse(service.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("ada", password)
	h, err := newSecretHandler(t, u.String()+"/jobs?query-secret", map[string]string{"API_TOKEN": "token-4711"},
		spec.Header{Name: "X-Token", Prefix: "Bearer ", Env: "API_TOKEN"},
		spec.Header{Name: "X-Key", File: file},
		spec.Header{Name: "X-Open", Value: "open"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := h(t.Context(), newRun(&out)); err != nil {
		t.Fatal(err)
	}
	got := <-heard
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("ada:"+password))
	for name, want := range map[string]string{"X-Token": "Bearer token-4711", "X-Key": "key-4711", "X-Open": "open", "Authorization": basic} {
		if got.Get(name) != want {
			t.Errorf("the service got %s: %q, want %q", name, got.Get(name), want)
		}
	}
	for _, secret := range []string{"token-4711", "key-4711", password, strings.TrimPrefix(basic, "Basic ")} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("%s is kept in the output: %s", secret, &out)
		}
	}
	for _, open := range []string{"X-Token:[Bearer [hidden]]", "X-Open:[open]"} {
		if !strings.Contains(out.String(), open) {
			t.Errorf("%s is missing in the output: %s", open, &out)
		}
	}
}

func TestAHeaderOfTheJobReplacesTheUserOfTheURL(t *testing.T) {
	t.Parallel()
	service := echo(t, 200)
	h, err := newSecretHandler(t, strings.Replace(service, "//", "//ada:word@", 1), nil, spec.Header{Name: "Authorization", Value: "Digest x"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := h(t.Context(), newRun(&out)); err != nil || !strings.Contains(out.String(), "Authorization: Digest x\r\n") {
		t.Errorf("%v, %s", err, &out)
	}
}

// Wherever the answer is cut, no part of a secret is left at the cut.
func TestNoPartOfASecretIsLeftWhereTheAnswerIsCut(t *testing.T) {
	t.Parallel()
	secret := "S" + strings.Repeat("E", 98) + "T"
	for _, c := range []struct {
		name   string
		answer string
	}{
		{"at the limit", strings.Repeat("x", job.MaxOutput-50) + secret + strings.Repeat("x", 1<<20)},
		{"at the window", strings.Repeat("x", job.MaxOutput+50) + secret + strings.Repeat("x", 1<<20)},
		{"after many", strings.Repeat(secret+"x", 2000)},
		{"of the service", secret + strings.Repeat("x", 200) + secret[:60]},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text := "HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n" + c.answer
			url, _ := raw(t, answer(text))
			h, err := newSecretHandler(t, url, map[string]string{"T": secret}, spec.Header{Name: "X", Env: "T"})
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			_ = h(t.Context(), newRun(&out)) // the answer is always incomplete
			if strings.ContainsAny(out.String(), "ST") || !strings.Contains(out.String(), "x") {
				t.Errorf("a part is left: ...%s", out.Bytes()[max(0, out.Len()-200):])
			}
		})
	}
}

// The error of net/http quotes an answer that is not HTTP.
func TestSecretsAreNotInErrors(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"token-4711\r\n", "HTTP/1.1 200 OK\r\ntoken-4711\r\n\r\n", "HTTP/1.1 302 Found\r\nLocation: http://token-4711/\r\nContent-Length: 0\r\n\r\n"} {
		rawURL, _ := raw(t, answer(text))
		h, err := newSecretHandler(t, rawURL+"/jobs?query-secret", map[string]string{"T": "token-4711"}, spec.Header{Name: "X", Env: "T"})
		if err != nil {
			t.Fatal(err)
		}
		err = h(t.Context(), newRun(io.Discard))
		if outcome(err) != "retry" || strings.Contains(err.Error(), "4711") || strings.Contains(err.Error(), "query-secret") || !strings.Contains(err.Error(), "[hidden]") {
			t.Errorf("%s: %v", outcome(err), err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	err = newHandler(t, action(t, "http://ada:token-4711@"+l.Addr().String()+"/jobs?query-secret"))(t.Context(), newRun(io.Discard))
	if want := "POST http://" + l.Addr().String() + "/jobs: dial tcp"; err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "4711") {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestASecretFileIsReadAtEachRequest(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	heard := make(chan string, 1)
	service := serve(t, func(_ http.ResponseWriter, r *http.Request) { heard <- r.Header.Get("X-Token") })
	h, err := newSecretHandler(t, service.URL, nil, spec.Header{Name: "X-Token", File: file})
	if err != nil {
		t.Fatal(err)
	}
	if err := h(t.Context(), newRun(io.Discard)); outcome(err) != "retry" || !strings.Contains(err.Error(), "header X-Token: open "+file) {
		t.Errorf("without the file: %s, %v", outcome(err), err)
	}
	for _, text := range []string{"first", "second\n", "third\r\n"} {
		filetest.Write(t, file, text)
		if err := h(t.Context(), newRun(io.Discard)); err != nil {
			t.Fatal(err)
		}
		if got := <-heard; got != strings.TrimSpace(text) {
			t.Errorf("got %q of %q", got, text)
		}
	}
	for text, why := range map[string]string{
		"": "empty", " \n": "empty", "secret\nX-Other: secret": "line break", "secret\x00": "control", strings.Repeat("secret", 2000): "more than 8192 bytes",
	} {
		filetest.Write(t, file, text)
		err := h(t.Context(), newRun(io.Discard))
		if outcome(err) != "retry" || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "secret\n") || strings.Contains(err.Error(), "secretsecret") {
			t.Errorf("%.20q: %v, want %q", text, err, why)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := h(t.Context(), newRun(io.Discard)); outcome(err) != "retry" || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder: %v", err)
	}
}

func TestAMissingVariableIsAnErrorAtTheStart(t *testing.T) {
	t.Parallel()
	for value, why := range map[string]string{"": "is not set, or empty", "a\nb-secret": "line break"} {
		_, err := newSecretHandler(t, "http://127.0.0.1/", map[string]string{"T": value}, spec.Header{Name: "Authorization", Env: "T"})
		if err == nil || !strings.Contains(err.Error(), "header Authorization: environment variable T") || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", value, err)
		}
	}
}

// Services repeat values in other forms, such as JSON.
func TestSecretsAreNotKeptInTheFormsThatServicesGiveThem(t *testing.T) {
	t.Parallel()
	const secret = `to/k"en+47 11&`
	service := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got := r.Header.Get("X-Token")
		asJSON, _ := json.Marshal(got)
		fmt.Fprintf(w, "%s %q %s %s %s %s\n", got, got, asJSON, strings.ReplaceAll(got, `"`, `\"`), strings.ReplaceAll(strings.ReplaceAll(got, `"`, `\"`), "/", `\/`), url.QueryEscape(got))
		fmt.Fprintln(w, r.RequestURI)
	})
	h, err := newSecretHandler(t, service.URL+"/jobs?key=query-4711", map[string]string{"T": secret}, spec.Header{Name: "X-Token", Env: "T"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := h(t.Context(), newRun(&out)); err != nil {
		t.Fatal(err)
	}
	const hidden = "[hidden]"
	if want := hidden + ` "` + hidden + `" "` + hidden + `" ` + strings.Repeat(hidden+" ", 2) + hidden + "\n/jobs" + hidden + "\n"; out.String() != want {
		t.Errorf("kept %q, want %q", &out, want)
	}
}

// If a service answers with the request itself, the error of net/http quotes its first line.
func TestAQueryIsNotInTheErrorOfAServiceThatRepeatsIt(t *testing.T) {
	t.Parallel()
	rawURL, _ := raw(t, answer("POST /jobs?key=query-4711 HTTP/1.1\r\n\r\n"))
	h, err := newSecretHandler(t, rawURL+"/jobs?key=query-4711", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := h(t.Context(), newRun(io.Discard)); err == nil || strings.Contains(err.Error(), "4711") || !strings.Contains(err.Error(), "/jobs[hidden]") {
		t.Errorf("got %v", err)
	}
}
