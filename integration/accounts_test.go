//go:build long && unix

package integration

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// newAccountsSite is a guarded site on a nats-server with the configuration that
// "cronce auth --accounts" prints: its logins are in accounts of their own. In the
// account of the streams is one that may do everything, "admin".
func newAccountsSite(t *testing.T, logins ...string) guarded {
	t.Helper()
	s := newSite(t)
	p := s.start("auth", append([]string{"auth", "--accounts", "--on", "ORDERS/charge"}, logins...)...)
	if code := p.exit(); code != 0 {
		t.Fatalf("cronce auth --accounts: %d: %s", code, p.stderr())
	}
	conf := regexp.MustCompile(`password: \$\w+`).ReplaceAllString(p.stdout(), "password: secret")
	conf = strings.Replace(conf, "jetstream: enabled", "jetstream: enabled\n  users: [ {user: admin, password: secret} ]", 1)
	addr := natstest.FreeAddress(t)
	host, port, _ := strings.Cut(addr, ":")
	s.server = start(t, "nats-server", s.env(), nil, program(t, natsServer), "-c", s.write("nats.conf", conf), "-sd", s.path("store"), "-a", host, "-p", port)
	s.server.says("Server is ready")
	s.url = "nats://" + addr
	s.environment = append(s.environment, "CRONCE_JS_DOMAIN=fleet")
	g := guarded{s}
	s.nc = natstest.Connect(t, g.login("admin"))
	s.js = natstest.JetStream(t, s.nc)
	return g
}

func TestAccountsLetEachRoleDoItsWork(t *testing.T) {
	t.Parallel()
	eachRoleWorks(t, newAccountsSite(t, "setup", "producer", "worker", "operator", "viewer"))
}

// The logins that are printed if none is named are those of a fleet whose nodes produce
// and work.
func TestAccountsOfAFleetRunIt(t *testing.T) {
	t.Parallel()
	g := newAccountsSite(t)
	g.does("setup", "setup", "--queue", "default")
	file := g.jobs("echo $CRONCE_SLOT_ID >> touched", `name: tick, schedule: "* * * * * *", overlap: queue`)
	g.does("operator", "job", "apply", "-f", file)
	if out := g.does("viewer", "job", "ls"); !strings.Contains(out, "tick") {
		t.Errorf("a viewer sees the jobs %q", out)
	}
	node := g.as("producer-worker").worker("w", file)
	eventually(t, "slots to run", func() bool { return len(g.touched()) >= 3 })
	if out := g.does("viewer", "slot", "ls", "--state", "succeeded"); !strings.Contains(out, "tick:") {
		t.Errorf("a viewer sees %q", out)
	}
	viewer := natstest.Connect(t, g.login("viewer"), nats.CustomInboxPrefix("_INBOX.cronce"))
	if m, err := viewer.Request("$SRV.PING.cronce", nil, natstest.Patience); err != nil || !strings.Contains(string(m.Data), `"cronce"`) {
		t.Errorf("a viewer looks at the service: %v", err)
	}
	term(node)
	g.unhindered(node)
}

// A server sends the answer to a request wherever the request says, and what a consumer
// delivers wherever its configuration says. Each login tries all that it may ask for,
// with streams and buckets as the place of the answer: nothing of them changes, and no
// stream is removed.
func TestAccountsKeepAHostileLoginFromTheStreams(t *testing.T) {
	t.Parallel()
	g := newAccountsSite(t, "setup", "producer", "worker", "operator", "viewer")
	g.does("setup", "setup", "--queue", "default")
	if _, err := g.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	jobs, ledger := g.bucket("jobs"), g.bucket("ledger")
	for _, key := range []string{"a", "b", "report"} {
		if _, err := ledger.PutString(t.Context(), key+".t.x", "{}"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.js.Publish(t.Context(), "orders.paid", nil); err != nil {
		t.Fatal(err)
	}
	targets := []string{
		"$JS.API.STREAM.DELETE.ORDERS", "$JS.fleet.API.STREAM.DELETE.ORDERS", "$JS.API.STREAM.PURGE.ORDERS", "$JS.fleet.API.STREAM.PURGE.ORDERS",
		"$JS.API.STREAM.DELETE.KV_cronce_ledger", "$JS.fleet.API.STREAM.DELETE.KV_cronce_ledger", "$KV.cronce_jobs.evil", "$JS.fleet.API.$KV.cronce_jobs.evil", "orders.evil",
	}
	for _, user := range []string{"producer", "worker", "viewer"} {
		hostile := natstest.Connect(t, g.login(user), nats.CustomInboxPrefix("_INBOX.cronce"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		own, err := hostile.Subscribe("cronce.node.*.cancel", func(m *nats.Msg) { _ = m.Respond([]byte("{}")) })
		if err != nil {
			t.Fatal(err)
		}
		for i, target := range targets {
			for subject, body := range map[string]string{
				"$JS.fleet.API.DIRECT.GET.KV_cronce_ledger":                            `{"seq":1,"batch":10}`,
				"$JS.fleet.API.DIRECT.GET.KV_cronce_jobs":                              `{"seq":1,"batch":10}`,
				"$JS.fleet.API.STREAM.INFO.KV_cronce_state":                            ``,
				"$JS.fleet.API.STREAM.MSG.GET.KV_cronce_ledger":                        `{"last_by_subj":"$KV.cronce_ledger.a.t.x"}`,
				"$JS.fleet.API.CONSUMER.MSG.NEXT.cronce_slots.default":                 `{"batch":1,"expires":1000000}`,
				"$JS.fleet.API.$KV.cronce_nodes.evil":                                  `{}`,
				"cronce.slot.default.report":                                           `{}`,
				"cronce.node.x.cancel":                                                 `{}`,
				fmt.Sprintf("$JS.fleet.API.CONSUMER.CREATE.KV_cronce_nodes.evil%d", i): `{"stream_name":"KV_cronce_nodes","config":{"name":"evil` + fmt.Sprint(i) + `","deliver_subject":"` + target + `","deliver_policy":"all","ack_policy":"none","replay_policy":"instant","mem_storage":true,"num_replicas":1}}`,
			} {
				if err := hostile.PublishRequest(subject, target, []byte(body)); err != nil {
					t.Fatal(err)
				}
			}
		}
		// One message that is to remove all others.
		for _, subject := range []string{"$JS.fleet.API.$KV.cronce_ledger.report.t.x", "$JS.fleet.API.$KV.cronce_nodes.evil", "cronce.slot.default.report", "cronce.event.failed.report"} {
			if err := hostile.PublishMsg(&nats.Msg{Subject: subject, Header: nats.Header{"Nats-Rollup": {"all"}}, Data: []byte("{}")}); err != nil {
				t.Fatal(err)
			}
		}
		// The server has dealt with all of it when it answers what came after.
		for range 3 {
			if _, err := hostile.Request("$JS.fleet.API.STREAM.INFO.KV_cronce_state", nil, natstest.Patience); err != nil {
				t.Fatal(err)
			}
		}
		_ = own.Unsubscribe()
	}
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	var streams []string
	for name := range g.js.StreamNames(ctx).Name() {
		streams = append(streams, name)
	}
	if want := []string{"KV_cronce_jobs", "KV_cronce_ledger", "KV_cronce_nodes", "KV_cronce_state", "ORDERS", "cronce_events", "cronce_slots", "cronce_timers"}; !slices.Equal(streams, want) {
		t.Errorf("the streams are %q", streams)
	}
	orders, err := g.js.Stream(ctx, "ORDERS")
	if err != nil || orders.CachedInfo().State.Msgs != 1 || orders.CachedInfo().State.LastSeq != 1 {
		t.Errorf("ORDERS: %v, %+v", err, orders)
	}
	if status, err := jobs.Status(ctx); err != nil || status.Values() != 0 {
		t.Errorf("the registry has entries: %v, %+v", err, status)
	}
	keys, err := ledger.Keys(ctx)
	slices.Sort(keys)
	if !slices.Equal(keys, []string{"a.t.x", "b.t.x", "report.t.x"}) {
		t.Errorf("the ledger has %q, %v", keys, err)
	}
}

// A request names the subject of its answer, and a login that may publish there may publish
// anywhere. So nodes answer below a prefix of their own, and nowhere else.
func TestLoginsMayNotAnswerOnASubjectOfTheRequestersChoice(t *testing.T) {
	t.Parallel()
	g := newGuardedSite(t)
	g.does("setup", "setup", "--queue", "default")
	refused := make(chan error, 10)
	for _, user := range []string{"narrow", "worker", "producer", "operator"} {
		own := map[string]string{"narrow": "cronce.node.x.cancel", "worker": "cronce.node.x.cancel", "producer": "cronce.producers", "operator": "cronce.api.job.show"}[user]
		nc := natstest.Connect(t, g.login(user), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
		sub, err := nc.SubscribeSync(own)
		if err != nil {
			t.Fatal(err)
		}
		reply := "$KV.cronce_state.settings"
		if err := nc.PublishRequest(own, reply, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		m, err := sub.NextMsg(natstest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Respond([]byte("{}")); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-refused:
			if !strings.Contains(err.Error(), reply) {
				t.Errorf("%s: %v", user, err)
			}
		case <-time.After(natstest.Patience):
			t.Errorf("%s answers on %s", user, reply)
		}
	}
}
