package web_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
	"github.com/cronce-io/cronce/web"
)

// user has the permissions of a role.
func user(t *testing.T, name string, role layout.Role) *server.User {
	t.Helper()
	grants, err := layout.Access{Roles: []layout.Role{role}}.Grants()
	if err != nil {
		t.Fatal(err)
	}
	p := &server.Permissions{Publish: &server.SubjectPermission{}, Subscribe: &server.SubjectPermission{}}
	for _, g := range grants {
		p.Publish.Allow, p.Subscribe.Allow = append(p.Publish.Allow, g.Publish...), append(p.Subscribe.Allow, g.Subscribe...)
	}
	return &server.User{Username: name, Password: "p", Permissions: p}
}

// With the login of a viewer, the same program is read-only, because the broker refuses orders.
func TestViewersLoginMakesTheHandlerReadOnly(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "all", Password: "p"}, user(t, "viewer", layout.RoleViewer), user(t, "operator", layout.RoleOperator)}
	})
	conn := func(name string) *nats.Conn {
		return s.Conn(nats.UserInfo(name, "p"), nats.CustomInboxPrefix(layout.InboxPrefix("cronce")))
	}
	if _, err := space.Setup(t.Context(), natstest.JetStream(t, conn("all")), kv.Options{}); err != nil {
		t.Fatal(err)
	}
	all, err := client.New(t.Context(), conn("all"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all.Apply(t.Context(), []job.Job{{Name: "report", Schedule: "0 7 * * *"}}, client.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		login string
		order int
	}{{"viewer", http.StatusForbidden}, {"operator", http.StatusOK}} {
		c, err := client.New(t.Context(), conn(tc.login))
		if err != nil {
			t.Fatal(err)
		}
		h := web.New(c, web.WithUser(func(r *http.Request) string { return r.Header.Get("X-User") }))
		mux := http.NewServeMux()
		mux.Handle("/ops/cronce/", http.StripPrefix("/ops/cronce", h))
		site := httptest.NewServer(mux)
		for request, want := range map[string]int{
			"GET /jobs": 200, "GET /jobs/report": 200, "GET /slots": 200, "GET /nodes": 200, "GET /openapi.json": 200,
			"POST /jobs/report:pause": tc.order, "POST /jobs/report:trigger": map[bool]int{true: 201, false: 403}[tc.order == 200],
		} {
			method, path, _ := strings.Cut(request, " ")
			r, err := http.NewRequest(method, site.URL+"/ops/cronce/api/v1"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-User", "erin")
			began := time.Now()
			w, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(w.Body)
			w.Body.Close()
			if err != nil || w.StatusCode != want && !(want == 200 && w.StatusCode == 201) {
				t.Errorf("%s as %s: %d after %v, want %d: %s", request, tc.login, w.StatusCode, time.Since(began), want, body)
			}
			if w.Header.Get("Content-Security-Policy") == "" {
				t.Errorf("%s has no content policy", request)
			}
		}
		showsOrders(t, site.URL+"/ops/cronce", tc.order == http.StatusOK)
		h.Close()
		site.Close()
	}
	d, err := all.Job(t.Context(), "report")
	if err != nil || !d.Paused || d.By != "erin" {
		t.Errorf("the operator's order: %+v, %v", d.Definition, err)
	}
}

// showsOrders checks that the pages offer orders if the login may give them, and otherwise say why
// not.
func showsOrders(t *testing.T, site string, may bool) {
	t.Helper()
	for path, want := range map[string]string{
		"/jobs": `value="resume"`, "/jobs/report": `/jobs/report/backfill"`, "/jobs/report/remove": "<button class=\"danger\"", "/jobs:bulk?order=resume&job=report": "<button>Resume",
	} {
		w, err := http.Get(site + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(w.Body)
		w.Body.Close()
		if err != nil || w.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d, %v", path, w.StatusCode, err)
		}
		if has := strings.Contains(string(body), want); has != may {
			t.Errorf("%s has %s: %v, want %v: %s", path, want, has, may, body)
		}
		if says := strings.Contains(string(body), "Read-only: the NATS login of this process may give no orders."); says == may {
			t.Errorf("%s says that it is read-only: %v", path, says)
		}
		if !may && strings.HasSuffix(path, "/remove") && !strings.Contains(string(body), "The NATS server decides which orders it may give") {
			t.Errorf("%s does not say why there is no button: %s", path, body)
		}
	}
}
