package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// fixture is a namespace with something in it.
type fixture struct {
	cli
	store  *kv.Store
	url    string
	server *natstest.Server
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	s := natstest.Run(t)
	store := kvtest.Open(t, s.JetStream(), kv.Options{})
	url := s.ClientURL()
	return &fixture{server: s, cli: cli{env: map[string]string{"CRONCE_SERVER": url}}, store: store, url: url}
}

func (f *fixture) ok(t *testing.T, args ...string) string {
	t.Helper()
	r := f.run(t, args...)
	if r.code != base.ExitDone || r.stderr != "" {
		t.Fatalf("cronce %s: exit status %d, stderr:\n%s", strings.Join(args, " "), r.code, r.stderr)
	}
	return r.stdout
}

// record writes a slot's record over and over, once for each state that it goes
// through, and returns the last revision.
func (f *fixture) record(t *testing.T, r job.Record, states ...job.State) uint64 {
	t.Helper()
	var revision uint64
	var err error
	for i, state := range states {
		r.State, r.Nonce = state, fmt.Sprint("nonce", i)
		if revision, err = f.store.Ledger().Write(t.Context(), r, revision); err != nil {
			t.Fatal(err)
		}
	}
	return revision
}

func (f *fixture) publish(t *testing.T, queue string, m core.Message) {
	t.Helper()
	if _, err := f.store.Slots().Publish(t.Context(), queue, m, nil); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) define(t *testing.T, d plans.Definition) uint64 {
	t.Helper()
	d.Nonce = "nonce-" + d.Job.Name
	revision, err := f.store.Jobs().Write(t.Context(), d, 0)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func (f *fixture) join(t *testing.T, n exchange.Node, handlers ...string) {
	t.Helper()
	n.Nonce = "nonce-" + n.Name
	if _, err := f.store.Nodes().Write(t.Context(), n, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.store.HandlerLists().Write(t.Context(), exchange.Handlers{Node: n.Name, Jobs: handlers, Nonce: n.Nonce}, 0); err != nil {
		t.Fatal(err)
	}
}

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

func TestSlotLs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	eight, nine, ten := at("2026-03-28T08:00:00Z"), at("2026-03-28T09:00:00Z"), at("2026-03-28T10:00:00Z")
	attempt := func(n int, start time.Time, fence uint64, err string) job.Attempt {
		return job.Attempt{Number: n, Node: "web1-1-a-b", Fence: fence, Started: start, Finished: start.Add(time.Second), Error: err}
	}
	// Written newest first, so that the order of the listing is not that of the
	// ledger.
	f.record(t, job.Record{
		Slot: job.NewSlot("report", ten), Queue: "default", Attempt: 2, Node: "web1-1-a-b", Due: ten, Published: ten.Add(time.Millisecond),
		Attempts: []job.Attempt{attempt(1, ten, 1, "exit status 1"), {Number: 2, Node: "web1-1-a-b", Started: ten.Add(5 * time.Second)}},
	}, job.Running, job.Retrying, job.Running)
	f.record(t, job.Record{
		Slot: job.NewSlot("report", nine), Queue: "default", Attempt: 1, Node: "web1-1-a-b", Due: nine, Published: nine,
		Attempts: []job.Attempt{attempt(1, nine, 17, "")}, Finished: nine.Add(time.Second), Output: "a <b>\n",
	}, job.Running, job.Succeeded)
	f.record(t, job.Record{
		Slot: job.NewSlot("backup", nine), Queue: "slow", Attempt: 3, Node: "web1-1-a-b", Due: nine.Add(time.Minute), Published: nine,
		Attempts: []job.Attempt{attempt(3, nine.Add(2*time.Minute), 23, "no space left on device, and a lot more to say about it")},
		Finished: nine.Add(3 * time.Minute), Error: "no space left on device, and a lot more to say about it\nsecond line",
	}, job.Failed)
	f.record(t, job.Record{Slot: job.Slot{Job: "report", Token: "by hand"}, Queue: "default", Published: eight, Node: "web2-1-a-b"}, job.Cancelled)

	// One slot waits in the stream. Another has a message there and a record: the record counts.
	eleven := at("2026-03-28T11:00:00Z")
	f.publish(t, "default", core.Message{Slot: job.NewSlot("report", eleven), Due: eleven, Node: "web1-1-a-b"})
	f.publish(t, "default", core.Message{Slot: job.NewSlot("report", ten), Due: ten, Node: "web1-1-a-b"})

	published := func(id string) string { // the broker's timestamp of a message
		for w, err := range f.store.Slots().Waiting(t.Context(), stream.WaitingFilter{}) {
			if err == nil && w.Slot.ID() == id {
				return w.Published.UTC().Format(time.RFC3339Nano)
			}
		}
		t.Fatalf("%s does not wait", id)
		return ""
	}
	replace := strings.NewReplacer(published("report:2026-03-28T11:00:00Z"), "PUBLISHED")
	golden(t, "slot_ls.json", replace.Replace(f.ok(t, "slot", "ls", "-o", "json")))
	whole := f.ok(t, "slot", "ls")
	golden(t, "slot_ls.txt", whole)

	rows := strings.SplitAfter(whole, "\n")
	ids := func(text string) (ids []string) {
		for line := range strings.Lines(text) {
			id, _, _ := strings.Cut(line, "  ")
			ids = append(ids, id)
		}
		return ids
	}
	for args, want := range map[string]string{
		"--limit 2": rows[0] + rows[1] + rows[2], "--limit 99": whole, "--limit 2 --newest": rows[0] + rows[4] + rows[5],
		"--limit 1 --newest --job backup": rows[0] + rows[2], "--limit 1 --newest --state running": rows[0] + rows[4],
	} {
		if got := f.ok(t, append([]string{"slot", "ls"}, strings.Fields(args)...)...); !slices.Equal(ids(got), ids(want)) {
			t.Errorf("%s: %s", args, got)
		}
	}
	f.run(t, "slot", "ls", "--newest").oneError(t, base.ExitUsage, "--newest needs --limit")
	f.run(t, "slot", "ls", "--limit", "0").oneError(t, base.ExitUsage, "invalid --limit 0: must be at least 1")

	for args, want := range map[string][]string{
		"--job backup":                      {"backup:2026-03-28T09:00:00Z"},
		"--state pending":                   {"report:2026-03-28T11:00:00Z"},
		"--state running --state failed":    {"backup:2026-03-28T09:00:00Z", "report:2026-03-28T10:00:00Z"},
		"--since 2h":                        {"report:2026-03-28T10:00:00Z", "report:2026-03-28T11:00:00Z"},
		"--job report --since 1d --state x": nil,
	} {
		r := f.run(t, append([]string{"slot", "ls", "-o", "json"}, strings.Fields(args)...)...)
		if want == nil {
			r.oneError(t, base.ExitUsage, `invalid --state "x"`, "pending, running")
			continue
		}
		var got []string
		for line := range strings.Lines(r.stdout) {
			id, _, _ := strings.Cut(strings.TrimPrefix(line, `{"id":"`), `"`)
			got = append(got, id)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("slot ls %s lists %q, want %q; stderr %s", args, got, want, r.stderr)
		}
	}
}

func TestNodeLs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	started := at("2026-03-28T07:00:00Z")
	base := exchange.Node{
		State: exchange.NodeAlive, Started: started, Lease: time.Hour, Producer: true, Worker: true, Queues: []string{"default"},
		Running: 2, ClockOffset: -1500 * time.Microsecond, Tzdata: "2025c", Version: "v1.0.0",
	}
	node := func(name string, edit func(*exchange.Node)) {
		n := base
		n.Name = name
		edit(&n)
		f.join(t, n, "report")
	}
	node("b-2", func(n *exchange.Node) { n.Started = started.Add(time.Minute) })
	node("a-1", func(n *exchange.Node) { n.Lease = time.Nanosecond }) // silent as soon as it is asked about
	node("c-3", func(n *exchange.Node) {
		n.State, n.Started, n.Producer, n.Worker, n.Queues = exchange.NodeStopped, started.Add(2*time.Minute), true, false, nil
	})
	node("d-4", func(n *exchange.Node) {
		n.State, n.Started, n.ClockOffset, n.Tzdata = exchange.NodeFenced, started.Add(3*time.Minute), 2*time.Hour, "2024a"
		n.FencedBy, n.FencedAt = "b-2", started.Add(4*time.Minute)
	})

	events, err := f.store.Nodes().List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var pairs []string
	for _, ev := range events {
		pairs = append(pairs, ev.Time.UTC().Format(time.RFC3339Nano), "HEARTBEAT-"+ev.Name)
	}
	golden(t, "node_ls.json", strings.NewReplacer(pairs...).Replace(f.ok(t, "node", "ls", "-o", "json")))

	table := f.ok(t, "node", "ls")
	for i, want := range []string{"NODE", "a-1   silent ", "b-2   alive ", "c-3   stopped ", "d-4   fenced "} {
		if line := strings.Split(table, "\n")[i]; !strings.HasPrefix(line, want) || len(line) > 100 {
			t.Errorf("line %d is %q, want it to begin with %q", i, line, want)
		}
	}
	for _, cells := range []string{"-1ms    2025c", "+2h     2024a"} {
		if !strings.Contains(table, cells) {
			t.Errorf("want offset and time zone data %q in\n%s", cells, table)
		}
	}
}

func TestNodeLsAllTellsWhichNodesWereDeclaredDeadAndByWhom(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	began := at("2026-03-28T07:00:00Z")
	f.join(t, exchange.Node{Name: "a-1", State: exchange.NodeAlive, Started: began, Lease: time.Hour, Worker: true})
	f.join(t, exchange.Node{Name: "b-2", State: exchange.NodeFenced, Started: began, Lease: time.Hour, FencedBy: "a-1", FencedAt: began})
	for i, dead := range []string{"b-2", "old-1", "old-2", "old-1"} { // old-1 is reported twice
		e := job.Event{V: codec.Version, Kind: job.EventFenced, Time: began.Add(time.Duration(i) * time.Minute), Node: "a-1", Peer: dead}
		if err := f.store.EmitAndFlush(e); err != nil {
			t.Fatal(err)
		}
	}
	natstest.Eventually(t, "the events to be kept", func() bool {
		n := 0
		for range f.store.Events(t.Context(), kv.EventFilter{}) {
			n++
		}
		return n == 4
	})
	if got := f.ok(t, "node", "ls", "-o", "json"); strings.Contains(got, "old-") || strings.Count(got, "\n") != 2 {
		t.Errorf("without --all: %s", got)
	}
	lines := strings.Split(f.ok(t, "node", "ls", "--all", "-o", "json"), "\n")
	for i, want := range []string{
		`{"node":"old-1","state":"fenced","fenced_by":"a-1","fenced_at":"2026-03-28T07:01:00Z"}`,
		`{"node":"old-2","state":"fenced","fenced_by":"a-1","fenced_at":"2026-03-28T07:02:00Z"}`,
	} {
		if lines[i] != want {
			t.Errorf("line %d is %s, want %s", i, lines[i], want)
		}
	}
	if len(lines) != 5 { // the last one is empty
		t.Errorf("listed %q", lines)
	}
	if table := f.ok(t, "node", "ls", "--all"); !regexp.MustCompile(`old-1  fenced \S+ ago by a-1  -`).MatchString(table) {
		t.Errorf("got\n%s", table)
	}
}

// pflag reads the first line, and ignores the others silently.
func TestAListOfMoreThanOneLineIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, args := range [][]string{{"slot", "ls", "--state", "failed\nexpired"}, {"verify", "--job", "a\r\nb"}, {"setup", "--queue", "a,b\n"}} {
		f.run(t, args...).oneError(t, base.ExitUsage, "more than one line", args[len(args)-2])
	}
}

func TestNodeLsWarnsOfNodesWithOtherTimeZoneData(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, release := range map[string]string{"a-1": "2025c", "b-2": "2025c", "c-3": "2024a", "d-4": ""} {
		f.join(t, exchange.Node{Name: name, State: exchange.NodeAlive, Lease: time.Hour, Tzdata: release})
	}
	r := f.run(t, "node", "ls")
	for _, says := range []string{"different time zone data", "2025c", "2024a", "c-3"} {
		if !strings.Contains(r.stderr, says) {
			t.Errorf("stderr %q does not say %q", r.stderr, says)
		}
	}
	if r.code != base.ExitDone || strings.Count(r.stdout, "\n") != 5 {
		t.Errorf("%+v", r)
	}
}

func TestJobLs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "0 7 * * *", Timezone: "Europe/Berlin"}, Owner: "file", Node: "web1"})
	f.define(t, plans.Definition{Job: job.Job{Name: "backup", Schedule: "@every 1h", Queue: "slow"}, Owner: "operator", Node: "web1", Paused: true})
	f.define(t, plans.Definition{Job: job.Job{Name: "once", Schedule: "@at 2026-01-01T00:00:00Z"}, Owner: "code", Node: "web1"})
	eight, nine := at("2026-03-28T08:00:00Z"), at("2026-03-28T09:00:00Z")
	f.record(t, job.Record{Slot: job.NewSlot("report", nine), Node: "n"}, job.Succeeded)
	f.record(t, job.Record{Slot: job.NewSlot("report", eight), Node: "n"}, job.Failed)
	handlers := map[string][]string{"a": {"report", "once"}, "b": {"report"}, "c": {"report"}}
	for _, n := range []exchange.Node{{Name: "a", State: exchange.NodeAlive}, {Name: "b", State: exchange.NodeAlive}, {Name: "c", State: exchange.NodeFenced}} {
		n.Worker, n.Lease, n.Queues = true, time.Hour, []string{job.DefaultQueue}
		f.join(t, n, handlers[n.Name]...)
	}
	golden(t, "job_ls.json", f.ok(t, "job", "ls", "-o", "json"))
	golden(t, "job_ls.txt", f.ok(t, "job", "ls"))
}

func TestListsOfAnEmptyNamespace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, what := range []string{"job", "slot", "node"} {
		if got, want := f.ok(t, what, "ls"), "no "+what+"s\n"; got != want {
			t.Errorf("%s ls prints %q, want %q", what, got, want)
		}
		if got := f.ok(t, what, "ls", "-o", "json"); got != "" {
			t.Errorf("%s ls -o json prints %q, want nothing", what, got)
		}
	}
}

func TestListsOfANamespaceThatIsNotThere(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, what := range []string{"job", "slot", "node"} {
		f.run(t, what, "ls", "--namespace", "other").oneError(t, base.ExitFailed, `"other" is not set up`)
	}
	names := f.streamNames(t)
	if len(names) == 0 || strings.Contains(strings.Join(names, " "), "other") {
		t.Errorf("a listing created something: %q", names)
	}
}

func (f *fixture) streamNames(t *testing.T) (names []string) {
	t.Helper()
	list := natstest.JetStream(t, natstest.Connect(t, f.url)).StreamNames(t.Context())
	for name := range list.Name() {
		names = append(names, name)
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}

func TestSetup(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	c := cli{env: map[string]string{"CRONCE_SERVER": s.ClientURL()}}

	created := c.run(t, "setup", "--retention", "3d")
	if created.code != base.ExitDone || !strings.Contains(created.stdout, "created stream cronce_slots") {
		t.Fatalf("%+v", created)
	}
	if again := c.run(t, "setup"); again != (result{base.ExitDone, "nothing to change\n", ""}) {
		t.Errorf("the second time: %+v", again)
	}
	if again := c.run(t, "setup", "-o", "json"); again != (result{base.ExitDone, "", ""}) {
		t.Errorf("the third time: %+v", again)
	}
	changed := c.run(t, "setup", "--lease", "5s", "-o", "json")
	if changed.code != base.ExitDone || !strings.Contains(changed.stdout, `{"change":"changed the settings: `) || !strings.Contains(changed.stdout, "5s instead of") || !strings.Contains(changed.stderr, "restart the nodes") {
		t.Errorf("a change: %+v", changed)
	}
	c.run(t, "setup", "--lease", "10ms").oneError(t, base.ExitUsage, "lease 10ms: at least 1s")
	c.run(t, "setup", "--horizon", "soon").oneError(t, base.ExitUsage, `"soon"`, "90s, 36h or 7d")
	// A setting that is wrong only together with the stored ones is known only with the server: status 1.
	c.run(t, "setup", "--horizon", "72h").oneError(t, base.ExitFailed, "retention")
}
