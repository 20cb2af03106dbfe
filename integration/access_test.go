//go:build long && unix

package integration

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// guarded is a site whose server has a login for each role, with the permissions that "cronce auth"
// prints. The login "admin" may do everything.
type guarded struct{ *site }

func newGuardedSite(t *testing.T) guarded {
	t.Helper()
	s := newSite(t)
	users := "{user: admin, password: secret}\n"
	for _, role := range []string{"worker", "setup"} {
		users += s.auth(role)
	}
	for _, role := range []string{"producer", "operator", "viewer"} {
		users += s.auth(role, "--on", "ORDERS/charge")
	}
	users += s.auth("caller", "--job", "report")
	users += s.auth("worker", "--login", "narrow", "--queue", "reports", "--job", "report", "--follower", "next", "--inbox-prefix", "_INBOX.narrow")
	config := s.write("nats.conf", "authorization {\nusers: [\n"+users+"]\n}\n")
	o, err := server.ProcessConfigFile(config)
	if err != nil {
		t.Fatal(err)
	}
	running := natstest.Run(t, func(into *server.Options) {
		o.ServerName, o.Host, o.Port, o.JetStream, o.StoreDir = into.ServerName, into.Host, into.Port, true, into.StoreDir
		*into = *o
	})
	s.url = running.ClientURL()
	g := guarded{s}
	s.nc = natstest.Connect(t, g.login("admin"))
	s.js = natstest.JetStream(t, s.nc)
	return g
}

// auth is what "cronce auth" prints, with a password.
func (s *site) auth(args ...string) string {
	s.t.Helper()
	p := s.start("auth", append([]string{"auth"}, args...)...)
	if code := p.exit(); code != 0 {
		s.t.Fatalf("cronce auth %v: %d: %s", args, code, p.stderr())
	}
	before, after, found := strings.Cut(p.stdout(), "password: $")
	if !found {
		s.t.Fatalf("cronce auth %v asks for no password:\n%s", args, p.stdout())
	}
	_, after, _ = strings.Cut(after, "\n")
	return before + "password: secret\n" + after
}

func (g guarded) login(user string) string {
	if !slices.Contains([]string{"admin", "narrow"}, user) {
		user = "cronce-" + user
	}
	return strings.Replace(g.url, "://", "://"+user+":secret@", 1)
}

// as returns the site for programs that use a login.
func (g guarded) as(user string) *site {
	s := *g.site
	s.url = g.login(user)
	return &s
}

// does runs a command with a login until it ends, and returns what it prints.
func (g guarded) does(user string, args ...string) string {
	g.t.Helper()
	p := g.as(user).start(user+": "+strings.Join(args, " "), args...)
	if code := p.exit(); code != 0 {
		g.t.Fatalf("%s: exit status %d: %s", p.name, code, p.stderr())
	}
	g.unhindered(p)
	return p.stdout()
}

// unhindered fails the test if the server denied something to a login.
func (g guarded) unhindered(p *process) {
	g.t.Helper()
	if strings.Contains(strings.ToLower(p.stderr()), "permission") {
		g.t.Errorf("%s was not permitted something:\n%s", p.name, p.stderr())
	}
}

// The nodes of a fleet either produce or work. Each node and each person has its own login. All that
// happens on a usual day works.
func TestRolesMayDoTheirWork(t *testing.T) {
	t.Parallel()
	eachRoleWorks(t, newGuardedSite(t))
}

func eachRoleWorks(t *testing.T, g guarded) {
	g.does("setup", "setup", "--lease", "3s", "--queue", "default")
	if out := g.does("setup", "setup", "--retention", "8d"); !strings.Contains(out, "changed") {
		t.Errorf("setup changed nothing: %s", out)
	}
	var told atomic.Int32
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { told.Add(1) }))
	defer hook.Close()
	script := `case $CRONCE_JOB in
flaky) [ $CRONCE_ATTEMPT -gt 1 ] ;;
stuck) echo $$ > stuck.$CRONCE_ATTEMPT; echo $CRONCE_NODE > owner.$CRONCE_ATTEMPT; exec sleep 600 ;;
broken) exit 65 ;;
*) echo $CRONCE_SLOT_ID >> touched ;;
esac`
	file := g.jobs(script,
		`name: tick, schedule: "* * * * * *", overlap: queue`,
		`name: after, after: [flaky]`,
		`name: both, after: [flaky, broken]`,
		`name: charge, on: {stream: ORDERS, subject: orders.paid}`,
		`name: shards, schedule: "*/2 * * * * *", shards: 2`,
		`name: flaky, schedule: "0 0 1 1 *", retry: {attempts: 3, backoff: 100ms}`,
		`name: broken, schedule: "0 0 1 1 *", on_failure: {http: {url: "`+hook.URL+`"}}`,
		`name: stuck, schedule: "0 0 1 1 *", retry: {attempts: 5, backoff: 100ms}`)
	if _, err := g.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	g.does("operator", "job", "apply", "-f", file)

	producers := []*process{g.as("producer").start("p1", "run", "--no-work", "--node", "p1"), g.as("producer").start("p2", "run", "--no-work", "--node", "p2")}
	workers := map[string]*process{}
	for _, name := range []string{"w1", "w2"} {
		workers[name] = g.as("worker").worker(name, file, "--no-produce")
	}
	view := g.as("viewer")
	state := func(id string) string {
		for _, row := range view.slots() {
			if row.ID == id {
				return row.State
			}
		}
		return ""
	}
	is := func(id, want string) {
		t.Helper()
		eventually(t, id+" to be "+want, func() bool { return state(id) == want })
	}
	eventually(t, "ticks to succeed", func() bool { return len(g.touched()) >= 6 })

	// Runs are triggered at once, again, and for later. A run that fails is given a new start.
	g.does("operator", "job", "trigger", "flaky", "--key", "a")
	g.does("producer", "job", "trigger", "broken", "--key", "b")
	g.does("operator", "job", "trigger", "tick", "--key", "later", "--at", time.Now().Add(2*time.Second).UTC().Format(time.RFC3339))
	g.does("operator", "job", "trigger", "tick", "--key", "never", "--at", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	g.does("operator", "job", "trigger", "flaky", "--key", "w", "--wait")
	g.does("viewer", "slot", "wait", "flaky:@a")
	is("flaky:@a", "succeeded")
	is("after:@a", "succeeded")
	if _, err := g.js.Publish(t.Context(), "orders.paid", []byte("x"), jetstream.WithMsgID("o-1")); err != nil {
		t.Fatal(err)
	}
	is("charge:@o-1", "succeeded")
	is("broken:@b", "failed")
	eventually(t, "the alert to be delivered", func() bool { return told.Load() > 0 })
	is("tick:@later", "succeeded")
	g.does("operator", "slot", "cancel", "tick:@never")
	g.does("operator", "slot", "retry", "broken:@b")

	// A slot of a killed worker is taken over, and a run is cancelled.
	g.does("operator", "job", "trigger", "stuck", "--key", "s")
	eventually(t, "stuck to run", func() bool { return len(g.lines("owner.1")) == 1 })
	owner := g.lines("owner.1")[0][:2]
	workers[owner].kill()
	eventually(t, "stuck to be taken over", func() bool { return len(g.lines("owner.2")) == 1 })
	g.does("operator", "slot", "cancel", "stuck:@s")
	is("stuck:@s", "cancelled")

	// The registry, and the past.
	g.does("operator", "job", "pause", "tick")
	g.does("operator", "job", "resume", "tick")
	g.does("operator", "job", "backfill", "shards", "--from", time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), "--to", time.Now().Add(-time.Hour+6*time.Second).UTC().Format(time.RFC3339))
	g.does("operator", "job", "release", "tick")
	g.does("operator", "job", "rm", "tick")

	for _, args := range [][]string{
		{"job", "ls"}, {"job", "show", "shards"}, {"job", "next", "shards"}, {"slot", "ls"}, {"slot", "show", "stuck:@s"},
		{"slot", "explain", "stuck:@s"}, {"slot", "explain", "broken:@b"}, {"node", "ls"},
		{"slot", "ls", "--limit", "2", "--newest"},
	} {
		if out := g.does("viewer", args...); out == "" {
			t.Errorf("cronce %v shows a viewer nothing", args)
		}
	}
	follow := view.start("follow", "watch", "--job", "shards", "--follow-output")
	follow.says("watching")
	watch := view.start("watch", "watch")
	watch.says("watching")
	eventually(t, "a viewer to see an event", func() bool { return watch.stdout() != "" })
	for _, doctor := range []*process{view.start("doctor", "doctor"), g.as("operator").start("reset", "doctor", "--reset-watermark")} {
		if code := doctor.exit(); code != 0 && code != 3 {
			t.Errorf("%s: %d: %s", doctor.name, code, doctor.stderr())
		}
		g.unhindered(doctor)
	}
	verified := view.start("verify", "verify", "--from", time.Now().Add(-10*time.Second).UTC().Format(time.RFC3339), "--to", time.Now().UTC().Format(time.RFC3339))
	if code := verified.exit(); code != 0 && code != 3 {
		t.Errorf("verify: %d: %s", code, verified.stderr())
	}

	survivor := workers[map[string]string{"w1": "w2", "w2": "w1"}[owner]]
	for _, p := range append(producers, survivor, watch, follow, verified) {
		if p != verified {
			p.signal(syscall.SIGTERM)
			if code := p.exit(); code != 0 {
				t.Errorf("%s ends with %d", p.name, code)
			}
		}
		g.unhindered(p)
	}
	g.unhindered(workers[owner])
}

// logins are the roles by their first letters, and N, the worker of one queue and one job. The caller's job is
// "report".
var logins = map[byte]string{'P': "producer", 'W': "worker", 'O': "operator", 'V': "viewer", 'S': "setup", 'N': "narrow", 'C': "caller"}

// Each login tries every kind of subject, in the namespace and outside it. The server refuses what the
// login's role does not need.
func TestRolesMayDoNothingElse(t *testing.T) {
	t.Parallel()
	g := newGuardedSite(t)
	publish := map[string]string{
		// The stored truth.
		"$KV.cronce_jobs.report":                                            "O",
		"$KV.cronce_state.settings":                                         "S",
		"$KV.cronce_state.watermark":                                        "PO",
		"$KV.cronce_state.lock.report":                                      "WON",
		"$KV.cronce_state.lock.other":                                       "WO",
		"$KV.cronce_state.alert.report":                                     "PWN",
		"$KV.cronce_state.alert.other":                                      "PW",
		"$KV.cronce_state.anything":                                         "",
		"$KV.cronce_nodes.web1-1-2-abc":                                     "PWON",
		"$KV.cronce_ledger.report.20261121T070000Z":                         "WON",
		"$KV.cronce_ledger.report.t.TOKEN":                                  "WON",
		"$KV.cronce_ledger.other.20261121T070000Z":                          "WO",
		"$KV.cronce_ledger.report.20261121T070000Z.1of2":                    "WON",
		"$KV.cronce_elsewhere.report":                                       "",
		"$KV.billing_jobs.report":                                           "",
		"$KV.billing_ledger.report.20261121T070000Z":                        "",
		"$KV.billing_nodes.web1-1-2-abc":                                    "",
		"cronce.slot.default.report":                                        "PWOC",
		"cronce.slot.default.next":                                          "PWON",
		"cronce.timer.set.report.TOKEN":                                     "PO",
		"cronce.timer.set.report.TOKEN.1of2":                                "PO",
		"cronce.timer.due.default.report":                                   "",
		"billing.slot.default.report":                                       "",
		"cronce.event.failed.report":                                        "PWON",
		"cronce.event.failed.other":                                         "PWO",
		"cronce.event.fenced._":                                             "PWON",
		"cronce.event.failed._":                                             "PWO",
		"billing.event.failed.report":                                       "",
		"cronce.producers":                                                  "P",
		"cronce.lock.report":                                                "WN",
		"cronce.lock.other":                                                 "W",
		"cronce.node.web1-1-2-abc.cancel":                                   "WON",
		"billing.node.web1-1-2-abc.cancel":                                  "",
		"$JS.ACK.cronce_slots.reports.1.1.1.1.0":                            "WN",
		"$JS.ACK.cronce_slots.default.1.1.1.1.0":                            "W",
		"$JS.ACK.cronce_timers.reports.1.1.1.1.0":                           "WN",
		"$JS.ACK.hub.hash.cronce_slots.default.1.1.1.1.0":                   "W",
		"$JS.ACK.cronce_events.alerts.1.1.1.1.0":                            "W",
		"$JS.API.CONSUMER.MSG.NEXT.cronce_events.alerts":                    "W",
		"$JS.API.CONSUMER.CREATE.cronce_events.alerts.cronce.event.alert.*": "S",
		"$JS.ACK.ORDERS.cronce_cronce=charge.1.1.1.1.0":                     "P",
		"$JS.ACK.ORDERS.other.1.1.1.1.0":                                    "",
		"$JS.API.CONSUMER.MSG.NEXT.ORDERS.cronce_cronce=charge":             "P",
		"$JS.API.CONSUMER.MSG.NEXT.ORDERS.other":                            "",
		"$JS.API.CONSUMER.DELETE.ORDERS.cronce_cronce=charge":               "P",
		"$JS.API.CONSUMER.DELETE.ORDERS.cronce_cronce=charge=2":             "P",
		"$JS.API.CONSUMER.CREATE.ORDERS.cronce_cronce=charge=2.orders.paid": "P",
		"$JS.API.CONSUMER.DELETE.ORDERS.other":                              "",
		"$JS.API.STREAM.INFO.ORDERS":                                        "P",
		"$JS.ACK.billing_slots.default.1.1.1.1.0":                           "",
		"$JS.ACK.KV_cronce_jobs.x.1.1.1.1.0":                                "",
		"_INBOX.cronce.abc":                                                 "",
		"cronce.reply.abc":                                                  "PWON",
		"billing.reply.abc":                                                 "",
		"_INBOX.narrow.abc":                                                 "",
		"orders.paid":                                                       "",
		"$JS.API.INFO":                                                      "PWOVSNC",
		"$JS.API.STREAM.INFO.cronce_slots":                                  "PWOVSNC",
		"$JS.API.STREAM.INFO.billing_slots":                                 "",
		"$JS.API.STREAM.NAMES":                                              "",
		"$JS.API.STREAM.LIST":                                               "",
		"$JS.API.STREAM.MSG.GET.KV_cronce_state":                            "PWOVSN",
		"$JS.API.STREAM.MSG.GET.KV_cronce_jobs":                             "PWOVN",
		"$JS.API.STREAM.MSG.GET.KV_cronce_ledger":                           "PWOVN",
		"$JS.API.STREAM.MSG.GET.cronce_slots":                               "",
		"$JS.API.DIRECT.GET.KV_cronce_jobs":                                 "PWOVN",
		"$JS.API.DIRECT.GET.KV_cronce_ledger":                               "WOVN",
		"$JS.API.DIRECT.GET.KV_billing_ledger":                              "",
		"$JS.API.DIRECT.GET.cronce_slots":                                   "POV",
		"$JS.API.DIRECT.GET.cronce_events":                                  "PWOVN",
		"$JS.API.CONSUMER.MSG.NEXT.cronce_slots.reports":                    "WN",
		"$JS.API.CONSUMER.MSG.NEXT.cronce_slots.default":                    "W",
		"$JS.API.CONSUMER.MSG.NEXT.cronce_timers.default":                   "W",
		"$JS.API.CONSUMER.MSG.NEXT.billing_slots.default":                   "",
		"$JS.API.CONSUMER.MSG.NEXT.KV_cronce_ledger.x":                      "P",
		"$JS.API.CONSUMER.CREATE.KV_cronce_jobs.x":                          "PWN",
		"$JS.API.CONSUMER.CREATE.KV_cronce_ledger.x":                        "P",
		"$JS.API.CONSUMER.CREATE.KV_cronce_state.x":                         "P",
		"$JS.API.CONSUMER.CREATE.cronce_slots.reports":                      "",
		"$JS.API.CONSUMER.CREATE.cronce_slots.x.cronce.slot.default.>":      "S",
		"$JS.API.CONSUMER.CREATE.cronce_events.x":                           "",
		"$JS.API.CONSUMER.DURABLE.CREATE.cronce_slots.x":                    "",
		"$JS.API.CONSUMER.CREATE.ORDERS.x":                                  "",
		"$JS.API.CONSUMER.DELETE.cronce_slots.default":                      "",
		"$JS.API.CONSUMER.DELETE.KV_cronce_nodes.x":                         "PWN",
		"$JS.API.CONSUMER.PAUSE.cronce_slots.default":                       "",
		"$JS.API.CONSUMER.RESET.cronce_slots.default":                       "",
		"$JS.API.CONSUMER.LIST.cronce_slots":                                "POVS",
		"$JS.API.DIRECT.GET.KV_cronce_state":                                "OV",
		"$JS.API.CONSUMER.LIST.KV_cronce_jobs":                              "",
		"$JS.API.STREAM.CREATE.cronce_slots":                                "S",
		"$JS.API.STREAM.UPDATE.KV_cronce_ledger":                            "S",
		"$JS.API.STREAM.CREATE.cronce_more":                                 "",
		"$JS.API.STREAM.CREATE.billing_slots":                               "",
		"$JS.API.STREAM.UPDATE.ORDERS":                                      "",
		"$JS.API.STREAM.DELETE.cronce_slots":                                "",
		"$JS.API.STREAM.PURGE.cronce_slots":                                 "",
		"$JS.API.STREAM.PURGE.KV_cronce_ledger":                             "",
		"$JS.API.STREAM.PURGE.cronce_timers":                                "O",
		"$JS.API.STREAM.PURGE.cronce_events":                                "",
		"$JS.API.STREAM.MSG.DELETE.cronce_slots":                            "",
		"$JS.API.STREAM.MSG.DELETE.KV_cronce_jobs":                          "",
		"$JS.API.STREAM.SNAPSHOT.KV_cronce_jobs":                            "",
		"$JS.API.STREAM.RESTORE.KV_cronce_jobs":                             "",
		"$JS.API.STREAM.LEADER.STEPDOWN.cronce_slots":                       "",
		"$JS.API.STREAM.PEER.REMOVE.cronce_slots":                           "",
		"$JS.API.META.LEADER.STEPDOWN":                                      "",
		"$JS.API.ACCOUNT.PURGE.x":                                           "",
		"$SYS.REQ.SERVER.PING":                                              "",
		"cronce.node.web1-1-2-abc.output":                                   "OV",
		"cronce.api.job.pause":                                              "O",
		"cronce.api.slot.cancel":                                            "O",
		"cronce.api.later.report":                                           "OC",
		"cronce.api.later.other":                                            "O",
		"cronce.event.ordered.report":                                       "PWONC",
		"cronce.api.job.show":                                               "OV",
		"cronce.api.job.ls":                                                 "O",
		"cronce.api.job.next":                                               "O",
		"cronce.api.slot.ls":                                                "O",
		"cronce.api.node.ls":                                                "OV",
		"cronce.api.slot.explain":                                           "OV",
		"cronce.api.node.web1-1-2-abc":                                      "OV",
		"billing.api.job.pause":                                             "",
		"$SRV.PING":                                                         "OV",
		"$SRV.STATS.cronce.abc":                                             "OV",
		"$SRV.STATS.other":                                                  "",
		"$SYS.REQ.USER.INFO":                                                "PWOVNC",
	}
	subscribe := map[string]string{
		"_INBOX.cronce.>":      "PWOVSC",
		"cronce.reply.>":       "WOVN",
		"_INBOX.narrow.>":      "N",
		"_INBOX.>":             "",
		"_INBOX.billing.>":     "",
		"cronce.event.*.*":     "OV",
		"cronce.event.>":       "",
		"billing.event.*.*":    "",
		"cronce.producers":     "P",
		"cronce.lock.*":        "W",
		"cronce.lock.report":   "WN",
		"cronce.node.*.cancel": "WN",
		"cronce.node.*.output": "WN",
		"cronce.slot.>":        "",
		"cronce.api.*.*":       "O",
		"cronce.api.node.*":    "PWON",
		"cronce.api.later.*":   "PO",

		"cronce.reply.later.report.>": "WOVNC",
		"cronce.reply.later.other.>":  "WOVN",
		"cronce.event.*.report":       "OVC",
		"$SRV.INFO.cronce.*":          "PWN",
		"$SRV.>":                      "",
		"cronce.>":                    "",
		"$KV.>":                       "",
		"$KV.cronce_jobs.>":           "",
		"$JS.EVENT.ADVISORY.>":        "",
		"$JS.ACK.>":                   "",
		">":                           "",
	}
	for letter, user := range logins {
		t.Run(user, func(t *testing.T) {
			violations := make(chan string, 1000)
			nc := natstest.Connect(t, g.login(user), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
				violations <- err.Error()
			}))
			refused := func(do func() error, verb, subject string) bool {
				t.Helper()
				if err := errors.Join(do(), nc.Flush()); err != nil {
					t.Fatal(err)
				}
				// The server complains before it answers the flush.
				last := nc.LastError()
				if last == nil || !strings.Contains(last.Error(), fmt.Sprintf("%s to %q", verb, subject)) {
					return false
				}
				<-violations
				return true
			}
			for subject, may := range publish {
				got := !refused(func() error { return nc.Publish(subject, nil) }, "Publish", subject)
				if want := strings.IndexByte(may, letter) >= 0; got != want {
					t.Errorf("publish to %s: permitted: %v, want %v", subject, got, want)
				}
			}
			for subject, may := range subscribe {
				got := !refused(func() error { _, err := nc.SubscribeSync(subject); return err }, "Subscription", subject)
				if want := strings.IndexByte(may, letter) >= 0; got != want {
					t.Errorf("subscribe to %s: permitted: %v, want %v", subject, got, want)
				}
			}
		})
	}
}

// A login may publish the slots of one job, and write records and events of another. It cannot run or end
// slots of a third job, or publish its events: the server checks the subjects, and so do workers.
func TestLoginForOneJobReachesNoOther(t *testing.T) {
	t.Parallel()
	g := newGuardedSite(t)
	var told atomic.Int32
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { told.Add(1) }))
	defer hook.Close()
	alerts := `on_failure: {http: {url: "` + hook.URL + `"}}`
	file := g.jobs("echo $CRONCE_SLOT_ID >> touched", `name: next, schedule: "0 0 1 1 *"`,
		`name: report, schedule: "0 0 1 1 *", overlap: replace`, `name: payroll, schedule: "0 0 1 1 *", `+alerts)
	worker := g.as("admin").worker("w", file)
	worker.says("starting")

	narrow := natstest.Connect(t, g.login("narrow"), nats.CustomInboxPrefix("_INBOX.narrow"))
	future := time.Now().Add(time.Hour).UTC().Truncate(time.Hour).Format(time.RFC3339)
	send := func(subject, body string, header ...string) {
		t.Helper()
		m := nats.NewMsg(subject)
		m.Data = []byte(body)
		for i := 0; i < len(header); i += 2 {
			m.Header.Set(header[i], header[i+1])
		}
		if err := narrow.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	const next = "cronce.slot.default.next"
	send(next, "{}", "Nats-Msg-Id", "payroll:@a", "Cronce-Slot", "payroll:@a")
	send(next, "{}", "Nats-Msg-Id", "next:@b", "Cronce-Slot", "payroll:@b")
	send(next, "{}", "Cronce-Slot", "payroll:@c", "Cronce-Refused", "because")
	send(next, "{}", "Nats-Msg-Id", "payroll:"+future, "Cronce-Slot", "payroll:"+future, "Cronce-Missed", "1")
	send(next, "{}", "Cronce-Slot", "payroll:m."+future, "Cronce-Missed", "1000000", "Cronce-Missed-Last", "2100-01-01T00:00:00Z")
	send("cronce.event.alert.report", `{"v":1,"kind":"alert","job":"payroll","id":"payroll:@a","alert":"failed"}`)
	send("cronce.event.alert.report", `{"v":1,"kind":"alert","job":"report","id":"payroll:@a","alert":"failed"}`)
	send("$KV.cronce_state.lock.report", `{"v":1,"job":"payroll","holders":[{"id":"payroll:@z","at":"2026-01-01T00:00:00Z","on_time":true,"since":"2026-01-01T00:00:00Z"}],"nonce":"n"}`)
	send("$KV.cronce_ledger.report.t.K", `{"v":1,"id":"payroll:@K","queue":"default","state":"succeeded","attempt":1,"node":"n","nonce":"n","published":"2026-01-01T00:00:00Z"}`)
	if err := narrow.FlushTimeout(natstest.Patience); err != nil {
		t.Fatal(err)
	}
	send(next, "{}", "Nats-Msg-Id", "next:@own", "Cronce-Slot", "next:@own")
	eventually(t, "the login's own slot to run", func() bool { return slices.Contains(g.touched(), "next:@own") })
	eventually(t, "five slots and two alerts to be dropped, and said to be", func() bool {
		return strings.Count(worker.stderr(), "slot message dropped") == 5 && strings.Count(worker.stderr(), "message dropped: it is not an event") == 2
	})
	if got := g.touched(); len(got) != 1 {
		t.Errorf("ran %q", got)
	}
	for _, row := range g.as("admin").slots() {
		if row.Job != "next" {
			t.Errorf("there is a record of %+v", row)
		}
	}
	if n := told.Load(); n > 0 {
		t.Errorf("told of payroll %d times", n)
	}
	term(worker)
}

// If a login may not do what a command needs, the command ends with an error that names what is denied. It
// does not repeat the request.
func TestRolesAreToldWhatIsNotPermitted(t *testing.T) {
	t.Parallel()
	g := newGuardedSite(t)
	file := g.jobs("true", `name: report, schedule: "0 0 1 1 *"`)
	refused := func(user, names string, args ...string) {
		t.Helper()
		p := g.as(user).start(user+": "+strings.Join(args, " "), args...)
		if code := p.exit(); code != 1 || !strings.Contains(p.stderr(), "not permitted") || !strings.Contains(p.stderr(), names) {
			t.Errorf("%s: exit status %d, want 1 and a word on %s: %s", p.name, code, names, p.stderr())
		}
		if strings.Contains(p.stderr(), "secret") {
			t.Errorf("%s tells a password: %s", p.name, p.stderr())
		}
	}
	// As long as there is no namespace, only setup may create it.
	refused("worker", "STREAM.CREATE", "run", "-f", file, "--no-produce")
	refused("producer", "STREAM.CREATE", "run", "--no-work")
	g.does("setup", "setup", "--queue", "default")
	refused("viewer", "$KV.cronce_jobs.report", "job", "apply", "-f", file)
	g.does("operator", "job", "apply", "-f", file)
	g.does("operator", "job", "trigger", "report", "--key", "k")

	refused("viewer", "cronce.slot.default.report", "job", "trigger", "report")
	refused("viewer", "cronce.api.later.report", "job", "trigger", "report", "--at", "2099-01-01T00:00:00Z")
	refused("viewer", "$KV.cronce_jobs.report", "job", "pause", "report")
	refused("viewer", "$KV.cronce_jobs.report", "job", "rm", "report")
	refused("viewer", "$KV.cronce_ledger.report", "slot", "cancel", "report:@k")
	refused("viewer", "STREAM.UPDATE", "setup", "--retention", "9d")
	refused("worker", "$KV.cronce_jobs.report", "job", "pause", "report")
	refused("producer", "$KV.cronce_jobs.report", "job", "pause", "report")
	refused("producer", "$KV.cronce_ledger.report", "slot", "cancel", "report:@k")
	refused("operator", "STREAM.UPDATE", "setup", "--retention", "9d")

	// A worker compares its file with the registry, reports what it may not change, and goes on.
	w := g.as("worker").worker("w", g.jobs("true", `name: report, schedule: "0 0 1 1 *"`, `name: extra, schedule: "0 0 1 1 *"`), "--no-produce")
	w.says("may not write the job registry")
	w.says("node is up")
	eventually(t, "the slot to be run", func() bool { return len(g.as("viewer").slots("--state", "succeeded")) == 1 })
	// A worker may not create a queue that does not exist.
	lost := g.as("worker").worker("lost", g.jobs("true", `name: report, queue: lost, schedule: "0 0 1 1 *"`), "--no-produce")
	lost.says("cronce setup --queue lost")
}

// A node behind a leaf node, whose streams are in the hub's domain, with no more
// permissions at the leaf than its roles need.
func TestNodesOfALeafWorkInTheDomainOfTheHub(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	hub := natstest.Run(t, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain = "hub", "hub"
		o.LeafNode.Host, o.LeafNode.Port = "127.0.0.1", server.RANDOM_PORT
	})
	conf := s.write("leaf.conf", fmt.Sprintf("leafnodes { remotes: [ { url: %q } ] }\nauthorization { users: [\n%s\n%s\n] }\n", "nats-leaf://"+hub.LeafAddr(),
		s.auth("producer", "worker", "--js-domain", "hub", "--login", "node"), s.auth("operator", "--js-domain", "hub", "--login", "person")))
	o, err := server.ProcessConfigFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	leaf := natstest.Run(t, func(into *server.Options) {
		o.ServerName, o.Host, o.Port = "leaf", into.Host, into.Port
		*into = *o
	})
	eventually(t, "the leaf to reach the hub", func() bool { return leaf.NumLeafNodes() == 1 })
	s.url = hub.ClientURL()
	if p := s.start("setup", "setup", "--queue", "default"); p.exit() != 0 {
		t.Fatal(p.stderr())
	}
	at := func(login string, args ...string) *process {
		there := *s
		there.url = strings.Replace(leaf.ClientURL(), "://", "://"+login+":secret@", 1)
		return there.start(args[0], append(args, "--js-domain", "hub")...)
	}
	file := s.jobs("echo $CRONCE_SLOT_ID >> touched", `name: tick, schedule: "* * * * * *", overlap: queue`)
	apply := at("person", "job", "apply", "-f", file)
	if code := apply.exit(); code != 0 {
		t.Fatalf("apply: %d: %s", code, apply.stderr())
	}
	node := at("node", "run", "-f", file)
	eventually(t, "slots to run", func() bool { return len(s.touched()) >= 3 })
	list := at("person", "slot", "ls", "--state", "succeeded")
	if code := list.exit(); code != 0 || !strings.Contains(list.stdout(), "tick:") {
		t.Errorf("slot ls: %d: %s%s", code, list.stdout(), list.stderr())
	}
	node.signal(syscall.SIGTERM)
	if code := node.exit(); code != 0 {
		t.Errorf("the node ends with %d", code)
	}
	for _, p := range []*process{apply, node, list} {
		guarded{s}.unhindered(p)
	}
	if streams := natstest.JetStream(t, leaf.Conn(nats.UserInfo("person", "secret"))); streams != nil {
		if _, err := streams.AccountInfo(t.Context()); err == nil {
			t.Error("the leaf has a JetStream of its own: the test proves nothing")
		}
	}
}
