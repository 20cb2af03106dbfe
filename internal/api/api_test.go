package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"go.uber.org/goleak"

	"github.com/cronce-io/cronce/internal/api"
	"github.com/cronce-io/cronce/internal/api/row"
	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs a node that answers requests on a connection of its own.
func serve(t *testing.T, nc *nats.Conn, name string) *kv.Store {
	t.Helper()
	js := natstest.JetStream(t, nc)
	store := kvtest.Open(t, js, kv.Options{})
	var running atomic.Int64
	stop, err := api.For(nc, store, time.Now, nil)(t.Context(), name, func() exchange.Node {
		return exchange.Node{Producer: true, Worker: true, Queues: []string{"default"}, Running: int(running.Add(1)), Version: "v1.2.3"}
	}, func() []string { return []string{"report"} })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return store
}

// ask sends a request. code is the code of the error, if it fails.
func ask(t *testing.T, nc *nats.Conn, endpoint, request string, into any) (code, text string) {
	t.Helper()
	m, err := nc.Request("cronce.api."+endpoint, []byte(request), 25*time.Second)
	if err != nil {
		t.Fatalf("%s: %v", endpoint, err)
	}
	if code = m.Header.Get(micro.ErrorCodeHeader); code != "" {
		return code, m.Header.Get(micro.ErrorHeader)
	}
	if into != nil {
		if err := json.Unmarshal(m.Data, into); err != nil {
			t.Fatalf("%s answers %s: %v", endpoint, m.Data, err)
		}
	}
	return "", string(m.Data)
}

// Any NATS client can do what the command line does.
func TestOrdersOverNATS(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	store := serve(t, s.Conn(), "n1")
	serve(t, s.Conn(), "n2")
	nc := s.Conn()
	do := func(endpoint, request string, into any) {
		t.Helper()
		if code, text := ask(t, nc, endpoint, request, into); code != "" {
			t.Fatalf("%s %s: %s %s", endpoint, request, code, text)
		}
	}
	var applied api.Applied
	do("job.apply", `{"file":{"version":1,"jobs":[{"name":"report","schedule":"0 7 * * *"},{"name":"hourly","schedule":"0 * * * *"}]},"by":"alice"}`, &applied)
	if len(applied.Jobs) != 2 || applied.Jobs[0].Action != "create" || applied.Jobs[0].Error != "" {
		t.Errorf("applied %+v", applied)
	}
	entry, _, err := store.Jobs().Read(t.Context(), "report")
	if err != nil || entry.Node != "alice" || entry.Owner != plans.OwnerOperator {
		t.Errorf("stored %+v, %v", entry, err)
	}
	var details api.JobDetails
	if do("job.show", `{"job":"report"}`, &details); details.Revision != entry.Revision || len(details.Next) == 0 {
		t.Errorf("show: %+v", details)
	}
	var r api.Edited
	for _, step := range []struct {
		endpoint string
		changed  bool
	}{{"job.pause", true}, {"job.pause", false}, {"job.resume", true}, {"job.resume", false}, {"job.release", true}, {"job.release", false}} {
		if do(step.endpoint, `{"job":"report"}`, &r); r.Changed != step.changed || r.Job != "report" {
			t.Errorf("%s: %+v, want changed: %v", step.endpoint, r, step.changed)
		}
	}
	var run row.Trigger
	for _, fresh := range []bool{true, false} {
		if do("job.trigger", `{"job":"report","key":"k","payload":{"x":1}}`, &run); run.New != fresh || run.ID != "report:@k" || run.Queue != "default" {
			t.Errorf("trigger: %+v, want new: %v", run, fresh)
		}
	}
	if do("job.trigger", `{"job":"report","key":"later","at":"2099-01-01T00:00:00Z"}`, &run); !run.New || run.Due.IsZero() {
		t.Errorf("trigger later: %+v", run)
	}
	var filled api.Backfilled
	from := time.Now().Add(-3 * time.Hour).UTC().Truncate(time.Hour)
	if code, text := ask(t, nc, "job.backfill", fmt.Sprintf(`{"job":"hourly","from":%q,"to":%q}`, from.Format(time.RFC3339), from.Add(2*time.Hour).Format(time.RFC3339)), &filled); code != "" {
		t.Errorf("backfill: %s %s", code, text)
	}
	var slot api.SlotDetails
	if do("slot.show", `{"id":"report:@k"}`, &slot); slot.State != job.Pending {
		t.Errorf("slot show: %+v", slot)
	}
	var ended row.Cancel
	if do("slot.cancel", `{"id":"report:@k","by":"bob"}`, &ended); ended.State != job.Cancelled || !strings.Contains(ended.Error, "bob") {
		t.Errorf("slot cancel: %+v", ended)
	}
	var story api.Story
	if do("slot.explain", `{"id":"report:@k"}`, &story); story.State != job.Cancelled || len(story.Steps) == 0 || story.Why == "" {
		t.Errorf("slot explain: %+v", story)
	}
	var again row.Retry
	if do("slot.retry", `{"id":"report:@k"}`, &again); again.State != job.Retrying || again.Left == 0 {
		t.Errorf("slot retry: %+v", again)
	}
	do("job.rm", `{"job":"hourly"}`, &r)

	for _, tc := range []struct{ endpoint, request, code, says string }{
		{"job.show", `{"job":"nosuch"}`, "404", "nosuch"},
		{"job.show", `{"job":"a.>"}`, "400", "a.>"},
		{"job.show", `{"jbo":"report"}`, "400", "jbo"},
		{"job.show", `{`, "400", "request"},
		{"job.show", `{} {}`, "400", "after top-level value"},
		{"job.show", `{"Job":"report"}`, "400", "unknown member"},
		{"job.show", `{"job":"nosuch","job":"report"}`, "400", "twice"},
		{"job.show", `null`, "400", "not an object"},
		{"job.apply", `{"file":{},"revision":null}`, "400", "want a number"},
		{"job.show", "\x00\r\nX: y", "400", "request"},
		{"job.pause", `{"job":"report","by":"a\r\nb"}`, "400", "by"},
		{"job.trigger", `{"job":"report","key":"` + strings.Repeat("k", 129) + `"}`, "400", "128"},
		{"job.trigger", `{"job":"report","payload":"` + strings.Repeat("x", 300<<10) + `"}`, "400", "payload"},
		{"job.apply", `{"file":{"version":1,"jobs":[{"name":"../etc","schedule":"* * * * *"}]}}`, "400", "../etc"},
		{"job.apply", `{}`, "400", ""},
		{"job.backfill", `{"job":"report"}`, "400", "beginning"},
		{"job.backfill", `{"job":"report","from":"2026-01-01T00:00:00Z","rate":0}`, "400", "rate 0/s"},
		{"job.ls", `{"after":"x"}`, "400", "cursor"},
		{"job.ls", `{"limit":-1}`, "400", "limit"},
		{"job.next", `{"job":"nosuch"}`, "404", "nosuch"},
		{"job.next", `{"job":"report","count":-1}`, "400", "count"},
		{"slot.ls", `{"job":"a.>"}`, "400", "a.>"},
		{"slot.ls", `{"states":["done"]}`, "400", "done"},
		{"slot.ls", `{"after":"report:@k"}`, "400", "cursor"},
		{"slot.ls", `{"limit":-1}`, "400", "limit"},
		{"node.ls", `{"after":"x"}`, "400", "cursor"},
		{"slot.show", `{"id":"report:@nosuch"}`, "404", "no record"},
		{"slot.retry", `{"id":"report:@k"}`, "409", "retried"},
		{"slot.cancel", `{"id":"report"}`, "400", "report"},
	} {
		code, text := ask(t, nc, tc.endpoint, tc.request, nil)
		if code != tc.code || !strings.Contains(text, tc.says) || strings.ContainsAny(text, "\r\n\x00") {
			t.Errorf("%s %.60q: %s %q, want %s on %q", tc.endpoint, tc.request, code, text, tc.code, tc.says)
		}
	}
}

// Each node answers discovery requests, and describes its endpoints.
func TestNodesAreServices(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	serve(t, s.Conn(), "n1")
	serve(t, s.Conn(), "n2")
	nc := s.Conn()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest("$SRV.INFO.cronce", inbox, nil); err != nil {
		t.Fatal(err)
	}
	seen := map[string]micro.Info{}
	for range 2 {
		m, err := sub.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var info micro.Info
		if err := json.Unmarshal(m.Data, &info); err != nil {
			t.Fatal(err)
		}
		seen[info.Metadata["node"]] = info
	}
	info := seen["n1"]
	if len(seen) != 2 || info.Version != "1.2.3" || info.Metadata["namespace"] != "cronce" || info.Metadata["queues"] != "default" || info.Metadata["orders"] != "true" {
		t.Errorf("services %+v", seen)
	}
	for _, e := range info.Endpoints {
		for _, key := range []string{"request_schema", "response_schema"} {
			var schema struct {
				Type       string
				Properties map[string]any
			}
			if e.Name == "node" && key == "request_schema" {
				continue
			}
			if err := json.Unmarshal([]byte(e.Metadata[key]), &schema); err != nil || schema.Type != "object" || len(schema.Properties) == 0 {
				t.Errorf("%s has the %s %q: %v", e.Name, key, e.Metadata[key], err)
			}
		}
	}
	if len(info.Endpoints) != 18 {
		t.Errorf("%d endpoints", len(info.Endpoints))
	}
	var node api.Node
	if ask(t, nc, "node.n2", "", &node); node.Node != "n2" || node.Running == 0 {
		t.Errorf("node n2: %+v", node)
	}
	m, err := nc.Request("$SRV.STATS.cronce", nil, 10*time.Second)
	if err != nil || !strings.Contains(string(m.Data), `"running":`) {
		t.Errorf("stats %v, %v", m, err)
	}
}

// A node offers an order only if its own login may carry it out. Another node answers then.
func TestOnlyNodesWithTheRightsOfOperatorsOfferOrders(t *testing.T) {
	t.Parallel()
	user := func(name string, roles ...layout.Role) *server.User {
		grants, err := layout.Access{Roles: roles}.Grants()
		if err != nil {
			t.Fatal(err)
		}
		p := &server.Permissions{Publish: &server.SubjectPermission{}, Subscribe: &server.SubjectPermission{}, Response: &server.ResponsePermission{MaxMsgs: 1, Expires: time.Minute}}
		for _, g := range grants {
			p.Publish.Allow, p.Subscribe.Allow = append(p.Publish.Allow, g.Publish...), append(p.Subscribe.Allow, g.Subscribe...)
		}
		return &server.User{Username: name, Password: "p", Permissions: p}
	}
	s := natstest.Run(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "all", Password: "p"}, user("worker", layout.RoleWorker), user("producer", layout.RoleProducer),
			user("both", layout.RoleWorker, layout.RoleOperator), user("viewer", layout.RoleViewer), user("operator", layout.RoleOperator),
		}
	})
	conn := func(name string) *nats.Conn {
		return s.Conn(nats.UserInfo(name, "p"), nats.CustomInboxPrefix(layout.InboxPrefix("cronce")))
	}
	if _, err := space.Setup(t.Context(), natstest.JetStream(t, conn("all")), kv.Options{}); err != nil {
		t.Fatal(err)
	}
	offers := func(t *testing.T, operator *nats.Conn, node string) bool {
		t.Helper()
		m, err := operator.Request("$SRV.INFO.cronce", nil, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var info micro.Info
		if err := json.Unmarshal(m.Data, &info); err != nil || info.Metadata["node"] != node {
			t.Fatalf("info %s, %v", m.Data, err)
		}
		return info.Metadata["orders"] == "true" && len(info.Endpoints) > 1
	}
	operator, viewer := conn("operator"), conn("viewer")
	for name, want := range map[string]bool{"worker": false, "producer": false, "both": true, "all": true} {
		t.Run(name, func(t *testing.T) {
			nc := conn(name)
			serve(t, nc, name)
			if got := offers(t, operator, name); got != want {
				t.Errorf("a node of %s offers orders: %v, want %v", name, got, want)
			}
			var node api.Node
			if ask(t, viewer, "node."+name, "", &node); node.Node != name {
				t.Errorf("a viewer sees %+v", node)
			}
			if err := nc.LastError(); err != nil {
				t.Errorf("the server complains: %v", err)
			}
			if !want {
				if _, err := operator.Request("cronce.api.job.pause", []byte(`{"job":"report"}`), 10*time.Second); err != nats.ErrNoResponders {
					t.Errorf("an order is answered: %v", err)
				}
				return
			}
			if code, _ := ask(t, operator, "job.pause", `{"job":"report"}`, nil); code != "404" {
				t.Errorf("an order of an operator gives %s", code)
			}
			if code, _ := ask(t, viewer, "job.show", `{"job":"report"}`, nil); code != "404" {
				t.Errorf("a question of a viewer gives %s", code)
			}
			for _, list := range []string{"job.ls", "slot.ls", "node.ls"} {
				if code, text := ask(t, operator, list, "", nil); text != `{"rows":[]}` {
					t.Errorf("an operator is answered %s %s by %s", code, text, list)
				}
			}
			if _, err := viewer.Request("cronce.api.slot.ls", nil, 300*time.Millisecond); err == nil {
				t.Error("a viewer has a node read the ledger")
			}
			if _, err := viewer.Request("cronce.api.job.pause", []byte(`{"job":"report"}`), 300*time.Millisecond); err == nil {
				t.Error("a viewer pauses a job")
			}
		})
	}
}

func TestANodeThatStoppedAnswersNoMore(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	nc := s.Conn()
	store := kvtest.Open(t, natstest.JetStream(t, nc), kv.Options{})
	stop, err := api.For(nc, store, time.Now, nil)(t.Context(), "n", func() exchange.Node { return exchange.Node{Version: "(devel)"} }, func() []string { return nil })
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if _, err := nc.Request("$SRV.PING.cronce", nil, 10*time.Second); err != nats.ErrNoResponders {
		t.Errorf("a node that stopped answers: %v", err)
	}
	if _, err := natstest.JetStream(t, nc).AccountInfo(t.Context()); err != nil {
		t.Error(err)
	}
}
