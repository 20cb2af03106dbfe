//go:build long

package integration

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// nginxConf serves two processes below a path. The header X-Served-By says which one answered.
const nginxConf = `
daemon off;
master_process off;
error_log stderr;
pid %[1]s/nginx.pid;
events {}
http {
  access_log off;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  upstream cronce { server %[2]s max_fails=1 fail_timeout=1s; server %[3]s max_fails=1 fail_timeout=1s; }
  server {
    listen unix:%[1]s/nginx.sock;
    location /ops/cronce/ {
      proxy_pass http://cronce/;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_read_timeout 1h;
      add_header X-Served-By $upstream_addr always;
    }
  }
}
`

// proxied is the dashboard of two processes behind nginx.
type proxied struct {
	http    http.Client
	servers map[string]*process // by their addresses
}

func newProxied(t *testing.T, url string) *proxied {
	t.Helper()
	s := &proxied{servers: map[string]*process{}}
	dir := t.TempDir()
	var addresses []any
	for range 2 {
		p := start(t, "cronce-ui", append(os.Environ(), "CRONCE_SERVER="+url), nil, program(t, cronce), "ui", "--listen", "127.0.0.1:0", "-o", "json")
		var address string
		natstest.Eventually(t, "the address of cronce ui", func() bool {
			m := regexp.MustCompile(`"url":"http://([^"]+)"`).FindStringSubmatch(p.stdout())
			if m != nil {
				address = m[1]
			}
			return m != nil
		})
		s.servers[address], addresses = p, append(addresses, address)
	}
	conf := filepath.Join(dir, "nginx.conf")
	filetest.Write(t, conf, fmt.Appendf(nil, nginxConf, append([]any{dir}, addresses...)...))
	start(t, "nginx", os.Environ(), nil, "/usr/sbin/nginx", "-e", "stderr", "-p", dir, "-c", conf)
	s.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, "nginx.sock"))
	}}
	natstest.Eventually(t, "nginx to serve the first page", func() bool {
		w, err := s.http.Get("http://localhost/ops/cronce/")
		if err != nil {
			return false
		}
		w.Body.Close()
		return w.StatusCode == http.StatusOK
	})
	return s
}

// stream opens the stream of orders after the event last. servedBy is the address of the process that serves it.
func (s *proxied) stream(t *testing.T, last string) (lines *bufio.Scanner, servedBy string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/ops/cronce/api/v1/events?kind=ordered", nil)
	if err != nil {
		t.Fatal(err)
	}
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	w, err := s.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Body.Close() })
	if w.StatusCode != http.StatusOK {
		t.Fatalf("status %d", w.StatusCode)
	}
	by := strings.Split(w.Header.Get("X-Served-By"), ", ")
	return bufio.NewScanner(w.Body), by[len(by)-1]
}

// nextOrder returns the verb of the next order in a stream, and the ID of its event. The verb is "" if the stream
// has ended.
func nextOrder(lines *bufio.Scanner) (order, id string) {
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			id = rest
		}
		if m := regexp.MustCompile(`"order":"([a-z]+)"`).FindStringSubmatch(lines.Text()); m != nil {
			return m[1], id
		}
	}
	return "", id
}

// The process that serves a stream of events is killed. A client that opens the stream again is served by the other
// process, and misses no event.
func TestDashboardBehindNginxSurvivesTheProcessThatServesIt(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/usr/sbin/nginx"); err != nil {
		lacking(t, "nginx", err.Error())
	}
	s := natstest.Run(t)
	nc := s.Conn()
	if _, err := space.Setup(t.Context(), natstest.JetStream(t, nc), kv.Options{}); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(t.Context(), []job.Job{{Name: "report", Schedule: "0 7 * * *"}}, client.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	site := newProxied(t, s.ClientURL())
	get := func(path string) (int, string) {
		t.Helper()
		w, err := site.http.Get("http://localhost/ops/cronce/" + path)
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
	order := func(verb string) {
		t.Helper()
		w, err := site.http.Post("http://localhost/ops/cronce/api/v1/jobs/report:"+verb, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		w.Body.Close()
		if w.StatusCode != http.StatusOK {
			t.Fatalf("%s: status %d", verb, w.StatusCode)
		}
	}
	status, page := get("jobs/report")
	if status != 200 || strings.Contains(page, `href="/`) || strings.Contains(page, `src="/`) {
		t.Errorf("below a path: %d: %s", status, page)
	}
	first, servedBy := site.stream(t, "")
	order("pause")
	what, last := nextOrder(first)
	if what != "pause" || last == "" {
		t.Fatalf("the stream begins with %q, id %q", what, last)
	}
	died := site.servers[servedBy]
	if died == nil {
		t.Fatalf("served by %q", servedBy)
	}
	began := time.Now()
	died.kill()
	if what, _ := nextOrder(first); what != "" {
		t.Errorf("the stream of a dead process has %q", what)
	}
	order("resume") // while no stream is open
	second, other := site.stream(t, last)
	if other == servedBy {
		t.Errorf("the dead process %s serves", other)
	}
	order("pause")
	for _, want := range []string{"resume", "pause"} {
		if what, _ := nextOrder(second); what != want {
			t.Errorf("the second stream has %q, want %q", what, want)
		}
	}
	if status, page := get("slots"); status != 200 || !strings.Contains(page, "Slots") {
		t.Errorf("after the death: %d: %s", status, page)
	}
	t.Logf("went on after %v", time.Since(began))
}
