//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

func TestHTTPFlagsThatAreWrongStartNothing(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	filetest.Write(t, token, "alice:0123456789abcdef\n")
	for _, tc := range []struct{ args, says string }{
		{"ui --listen :0", "without a login"},
		{"ui --listen 0.0.0.0:0 --http-insecure --http-token-file " + token, "--http-insecure excludes"},
		{"ui --listen 127.0.0.1:0 --metrics-addr 9464", `invalid --metrics-addr "9464": want HOST:PORT`},
		{"ui --listen 8080", `invalid --listen "8080": want HOST:PORT`},
		{"run --http :0", "without a login"},
		{"run --http localhost", `invalid --http "localhost": want HOST:PORT`},
		{"run --http-token-file " + token, "need --http"},
		{"ui --http-token-file /nowhere", "--http-token-file: open /nowhere"},
		{"ui --http-trusted-proxy 10.0.0.0/33 --http-user-header X-User", `invalid --http-trusted-proxy "10.0.0.0/33"`},
		{"ui --http-user-header X-User", "need each other"},
		{"ui --http-user-header X:User --http-trusted-proxy 10.0.0.1", `invalid --http-user-header "X:User"`},
		{"ui --listen 127.0.0.1:0 --http-cert " + token, "invalid --http-cert or --http-key: they need each other"},
		{"ui --listen 127.0.0.1:0 --http-cert /nowhere --http-key " + token, "invalid --http-cert or --http-key: open /nowhere"},
		{"ui --listen=", "invalid --listen: must not be empty"},
		{"run --http=", "invalid --http: must not be empty"},
		{"ui --http-url ops.example.com", `invalid --http-url "ops.example.com"`},
		{"ui --oidc-client-id cronce", "need --oidc-issuer"},
		{"ui --oidc-issuer http://login.example.com", "invalid --oidc-issuer"},
	} {
		cli{}.run(t, strings.Fields(tc.args)...).oneError(t, base.ExitUsage, tc.says)
	}
}

// get sends a request and returns the status and the body.
func get(t *testing.T, method, url string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w, err := http.DefaultClient.Do(r)
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

func TestRunServesTheAPIAndMetricsOnOneAddress(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	file := filepath.Join(t.TempDir(), "jobs.yaml")
	filetest.Write(t, file, "version: 1\njobs:\n  - {name: hello, schedule: '@yearly', action: {exec: [echo, hello]}}\n")
	cmd := command(t, "run", "-f", file, "--server", s.ClientURL(), "--http", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0", "--log-format", "json")
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	lines := bufio.NewScanner(io.TeeReader(log, &text))
	url := ""
	for url == "" && lines.Scan() {
		if m := regexp.MustCompile(`"serving the HTTP API","url":"([^"]+)"`).FindStringSubmatch(lines.Text()); m != nil {
			url = m[1]
		}
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines.Scan() {
		}
	}()
	var jobs struct {
		Rows []struct {
			Job      string
			Handlers int
		}
	}
	natstest.Eventually(t, "the API lists the job with its handler", func() bool {
		status, body := get(t, "GET", url+"/api/v1/jobs")
		return status == 200 && json.Unmarshal([]byte(body), &jobs) == nil && len(jobs.Rows) == 1 && jobs.Rows[0].Handlers == 1
	})
	if status, body := get(t, "GET", url+"/metrics"); status != 200 || !strings.Contains(body, "cronce_") {
		t.Errorf("metrics: %d %.200s", status, body)
	}
	natstest.Eventually(t, "the node to be ready", func() bool {
		status, _ := get(t, "GET", url+"/readyz")
		return status == 200
	})
	if status, body := get(t, "POST", url+"/api/v1/jobs/hello:pause", "Sec-Fetch-Site", "cross-site"); status != 403 || !strings.Contains(body, "#cross-site") {
		t.Errorf("a request of another site: %d %s", status, body)
	}
	if status, body := get(t, "POST", url+"/api/v1/jobs/hello:pause"); status != 200 {
		t.Errorf("pause: %d %s", status, body)
	}
	send(t, cmd, syscall.SIGTERM)
	<-read
	if err := cmd.Wait(); err != nil {
		t.Errorf("after TERM: %v\n%s", err, &text)
	}
	if !strings.Contains(text.String(), `"msg":"request","method":"POST","path":"/api/v1/jobs/hello:pause","status":200`) {
		t.Errorf("log:\n%s", &text)
	}
}

func TestUIServesAFleetUntilTerm(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	if r := (cli{}).run(t, "setup", "--server", s.ClientURL()); r.code != 0 {
		t.Fatal(r)
	}
	tokens := filepath.Join(t.TempDir(), "tokens")
	filetest.Write(t, tokens, "alice:0123456789abcdef\n")
	// One address for both: health needs no login, and the API does.
	listen := natstest.FreeAddress(t)
	cmd := command(t, "ui", "--listen", listen, "--metrics-addr", listen, "--server", s.ClientURL(), "--http-token-file", tokens, "-o", "json")
	var log strings.Builder
	cmd.Stderr = &log
	line, err := bufio.NewReader(begin(t, cmd)).ReadString('\n')
	var said struct{ URL string }
	if err != nil || json.Unmarshal([]byte(line), &said) != nil {
		t.Fatalf("ui says %q, %v\n%s", line, err, &log)
	}
	const bearer = "Bearer 0123456789abcdef"
	for _, tc := range []struct {
		header []string
		want   int
	}{{nil, 401}, {[]string{"Authorization", bearer}, 200}, {[]string{"Authorization", bearer + "x"}, 401}} {
		if status, body := get(t, "GET", said.URL+"/api/v1/nodes", tc.header...); status != tc.want {
			t.Errorf("%v: %d %s", tc.header, status, body)
		}
	}
	for path, want := range map[string]string{"/healthz": "[+]live ok", "/readyz": "[+]broker ok", "/metrics": "go_goroutines"} {
		if status, body := get(t, "GET", said.URL+path); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	r, _ := http.NewRequest("PUT", said.URL+"/api/v1/jobs/report", strings.NewReader(`{"schedule":"0 7 * * *"}`))
	r.Header = http.Header{"Authorization": {bearer}, "Content-Type": {"application/json"}, "If-None-Match": {"*"}}
	w, err := http.DefaultClient.Do(r)
	if err != nil || w.StatusCode != 201 {
		t.Errorf("put: %v, %v", w, err)
	}
	w.Body.Close()
	if _, body := get(t, "GET", said.URL+"/api/v1/jobs/report", "Authorization", bearer); !strings.Contains(body, `"node":"alice"`) {
		t.Errorf("the job does not name its author: %s", body)
	}
	send(t, cmd, syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("after TERM: %v\n%s", err, &log)
	}
	if text := log.String(); strings.Contains(text, "0123456789abcdef") || !strings.Contains(text, "credentials refused") || !strings.Contains(text, "user=alice") {
		t.Errorf("log:\n%s", text)
	}
}

func TestUIWaitsUntilTheNamespaceExists(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	listen := natstest.FreeAddress(t)
	cmd := command(t, "ui", "--listen", listen, "--metrics-addr", listen, "--server", s.ClientURL())
	var log strings.Builder
	cmd.Stderr = &log
	out := bufio.NewReader(begin(t, cmd))
	natstest.Eventually(t, "ui to say what it waits for", func() bool {
		resp, err := http.Get("http://" + listen + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return err == nil && resp.StatusCode == 503 && strings.Contains(string(body), `namespace "cronce" is not set up`)
	})
	if status, body := get(t, "GET", "http://"+listen+"/healthz"); status != 200 {
		t.Errorf("live: %d %s", status, body)
	}
	if r := (cli{}).run(t, "setup", "--server", s.ClientURL()); r.code != 0 {
		t.Fatal(r)
	}
	if line, err := out.ReadString('\n'); err != nil || line != "url  http://"+listen+"\n" {
		t.Fatalf("ui says %q, %v\n%s", line, err, &log)
	}
	if status, body := get(t, "GET", "http://"+listen+"/api/v1/jobs"); status != 200 {
		t.Errorf("jobs: %d %s", status, body)
	}
	send(t, cmd, syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("after TERM: %v\n%s", err, &log)
	}
}

// A dashboard that starts before its server says so to people and to programs, and becomes the
// dashboard when the server is there.
func TestUIWaitsForItsServerAndSaysSo(t *testing.T) {
	t.Parallel()
	ports := natstest.FreePorts(t, 2)
	listen, broker := fmt.Sprintf("127.0.0.1:%d", ports[0]), fmt.Sprintf("nats://127.0.0.1:%d", ports[1])
	cmd := command(t, "ui", "--listen", listen, "--server", broker)
	var log strings.Builder
	cmd.Stderr = &log
	begin(t, cmd)
	page := func() (*http.Response, string) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+listen+"/jobs", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/html,*/*")
		w, err := http.DefaultClient.Do(r)
		if err != nil {
			return &http.Response{}, err.Error()
		}
		defer w.Body.Close()
		body, err := io.ReadAll(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		return w, string(body)
	}
	natstest.Eventually(t, "a page that says what is missing", func() bool {
		w, body := page()
		return w.StatusCode == 503 && w.Header.Get("Refresh") == "2" && strings.Contains(body, "waiting for the NATS server "+broker)
	})
	if status, body := get(t, "GET", "http://"+listen+"/api/v1/jobs"); status != 503 || !strings.Contains(body, `#unavailable"`) || !strings.Contains(body, broker) {
		t.Errorf("the API: %d %s", status, body)
	}
	natstest.Run(t, func(o *server.Options) { o.Port = ports[1] })
	if r := (cli{}).run(t, "setup", "--server", broker); r.code != 0 {
		t.Fatal(r)
	}
	natstest.Eventually(t, "the dashboard", func() bool {
		w, body := page()
		return w.StatusCode == 200 && w.Header.Get("Refresh") == "" && strings.Contains(body, "<title>Jobs")
	})
	send(t, cmd, syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("after TERM: %v\n%s", err, &log)
	}
}
