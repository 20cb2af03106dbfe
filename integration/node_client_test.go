//go:build long && unix

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/lab/proxy"
)

// program writes a program that imports the client from its package, as users do.
func (s *site) program(name, text string) string {
	s.t.Helper()
	modules := s.path("node_modules/@cronce-io")
	client, err := filepath.Abs(nodeClient)
	if err == nil {
		err = os.MkdirAll(modules, 0o700)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.Symlink(client, modules+"/client"); err != nil && !os.IsExist(err) {
		s.t.Fatal(err)
	}
	return s.write(name+".mjs", text)
}

// The programs of the client's README run as they are shown: a worker in ten lines, and a trigger
// with a wait for its outcome.
func TestReadmeOfTheJavaScriptClientRuns(t *testing.T) {
	t.Parallel()
	node := needNode(t)
	blocks := regexp.MustCompile(`(?m)(^    .*\n(?:\n?    .*\n)*)`).FindAllString(string(filetest.Read(t, nodeClient+"/README.md")), -1)
	if len(blocks) != 2 {
		t.Fatalf("the README has %d programs, want a worker, and a trigger with a wait", len(blocks))
	}
	if lines := strings.Fields(regexp.MustCompile(`[^\n]*\S[^\n]*`).ReplaceAllString(blocks[0], "x")); len(lines) > 10 {
		t.Errorf("the worker has %d lines, want ten", len(lines))
	}
	s := newServedSite(t)
	s.command(0, "setup", "--lease", lease.String())
	s.command(0, "job", "apply", "-f", s.jobs("false", `name: report, schedule: "@at 2099-01-01T00:00:00Z", overlap: allow`))
	const shown = "nats://127.0.0.1:4222"
	if !strings.Contains(blocks[0], shown) {
		t.Fatalf("the worker does not connect to %s", shown)
	}
	worker := start(t, "worker of the README", s.env(), nil, node, s.program("worker", strings.Replace(blocks[0], shown, s.url, 1)))

	text := "import { connect, trigger, wait } from '@cronce-io/client';\nconst nc = await connect({ servers: '" + s.url + "' });\n" +
		strings.Replace(blocks[1], "60_000", "600_000", 1) + // on a busy machine, a minute may be too short
		"console.log(JSON.stringify({ id, state, result }));\nawait nc.close();\n"
	p := start(t, "trigger of the README", s.env(), nil, node, s.program("trigger", text))
	if code := p.exit(); code != 0 {
		t.Fatalf("exit status %d: %s", code, p.stderr())
	}
	if got, want := strings.TrimSpace(p.stdout()), `{"id":"report:@order-4711","state":"succeeded"}`; got != want {
		t.Errorf("it printed %s, want %s", got, want)
	}
	term(worker)
}

// A worker and a caller in JavaScript need no more permissions than "cronce auth" prints.
func TestTheJavaScriptClientMayDoItsWork(t *testing.T) {
	t.Parallel()
	node, g := needNode(t), newGuardedSite(t)
	g.does("setup", "setup", "--lease", lease.String(), "--queue", "default")
	g.does("operator", "job", "apply", "-f", g.jobs("false", `name: report, schedule: "@at 2099-01-01T00:00:00Z"`, "name: next, after: [report]"))
	program := func(user, text string) *process {
		connects := fmt.Sprintf("import { connect, run, trigger, wait } from '@cronce-io/client';\nconst log = console.error;\n"+
			"const nc = await connect({ servers: %q, user: %q, pass: 'secret', inboxPrefix: '_INBOX.cronce' });\n", g.url, "cronce-"+user)
		return start(t, user+" in JavaScript", g.env(), nil, node, g.program(user, connects+text))
	}
	worker := program("worker", `const stop = new AbortController();
process.on("SIGTERM", () => stop.abort());
await run(nc, { handlers: { report: () => "done", next: () => "done" }, produce: false, signal: stop.signal, log });
await nc.close();
`)
	producer := g.as("producer").start("p", "run", "--no-work") // a caller has it set timers
	producer.says("node is up")
	caller := program("caller", `const { state } = await wait(nc, await trigger(nc, "report", { key: "k" }));
console.log(state);
const at = new Date(Date.now() + 1000), later = await wait(nc, await trigger(nc, "report", { key: "l", at, payload: 7 }));
console.log(later.state, later.finished >= at);
await nc.close();
`)
	if code := caller.exit(); code != 0 || strings.TrimSpace(caller.stdout()) != "succeeded\nsucceeded true" {
		t.Errorf("the caller printed %q, exit status %d: %s", caller.stdout(), code, caller.stderr())
	}
	if out := g.does("operator", "slot", "wait", "next:@k"); !strings.Contains(out, "succeeded") {
		t.Errorf("what follows: %s", out)
	}
	term(worker)
	term(producer)
	g.unhindered(producer)
	g.unhindered(worker)
}

// clientProgram calls trigger and wait in many ways. Each line that it prints is a name and a value.
const clientProgram = `
import { Permanent, connect, run, trigger, wait } from "@cronce-io/client";
const nc = await connect({ servers: process.argv[2] }), stop = new AbortController(), calls = [];
const tell = (name, value) => console.log(JSON.stringify([name, value ?? null]));
const refused = (name, promise) => promise.then((v) => tell(name, v), (err) => tell(name, err.constructor.name + ": " + err.message));

const working = run(nc, {
  signal: stop.signal, name: "js", grace: 1000,
  handlers: {
    pay(slot) {
      const { fail, again } = JSON.parse(slot.payload || "{}");
      calls.push([slot.id, slot.attempt]);
      if (fail) throw new Permanent(fail);
      if (again && slot.attempt === 1) throw Object.assign(new Error("later"), { retryAfter: 10 });
      slot.result({ at: Date.now(), payload: slot.payload });
      return "paid";
    },
  },
});
const ids = await Promise.all([1, 2, 3].map(() => trigger(nc, "pay", { key: "one", payload: { n: 1 } })));
tell("ids", ids);
const one = await wait(nc, ids[0]);
tell("one", { ...one, finished: one.finished instanceof Date, revision: one.revision > 0, node: one.node.startsWith("js-"), result: one.result.payload });
tell("again", await trigger(nc, "pay", { key: "one", payload: { n: 2 } }));
tell("default", (await wait(nc, await trigger(nc, "pay", { key: "two" }))).result.payload);
const { state, error, attempt } = await wait(nc, await trigger(nc, "pay", { key: "wrong", payload: { fail: "no account" } }));
tell("wrong", { state, error, attempt });
tell("retried", (await wait(nc, await trigger(nc, "pay", { key: "flaky", payload: { again: true } }))).attempt);
const at = new Date(Date.now() + 1500), later = await trigger(nc, "pay", { key: "later", at });
tell("set twice", await trigger(nc, "pay", { key: "later", at }));
tell("later", (await wait(nc, later)).result.at >= at.getTime());
await trigger(nc, "idle", { key: "one" });
await trigger(nc, "idle", { key: "one", at: new Date(Date.now() + 3_600_000) });
await trigger(nc, "idle", { key: "two", at: new Date(Date.now() + 3_600_000) });
const timers = await nc.request("$JS.API.STREAM.INFO.cronce_timers", JSON.stringify({ subjects_filter: "cronce.timer.set.idle.>" }));
tell("waits", Object.keys(timers.json().state.subjects));
tell("random", (await trigger(nc, "pay")) !== (await trigger(nc, "pay")));

await refused("no job", trigger(nc, "unknown"));
await refused("large", trigger(nc, "pay", { payload: "x".repeat(262_143) }));
await refused("not JSON", trigger(nc, "pay", { payload: () => 1 }));
await refused("no time", trigger(nc, "pay", { at: new Date("soon") }));
await refused("no key", trigger(nc, "pay", { key: " x" }));
await refused("split", trigger(nc, "split"));
await refused("no slot", wait(nc, "pay"));
await refused("given up", wait(nc, "pay:@unknown", { signal: AbortSignal.timeout(100) }));
tell("calls", calls.filter(([id]) => id === "pay:@one"));
stop.abort();
await working;
await nc.close();
`

func TestJavaScriptTriggersAndWaits(t *testing.T) {
	t.Parallel()
	node := needNode(t)
	s := newServedSite(t)
	s.command(0, "setup", "--lease", lease.String())
	s.command(0, "job", "apply", "-f", s.jobs("false",
		`name: pay, schedule: "@at 2099-01-01T00:00:00Z", overlap: allow, payload: {n: 7}`,
		`name: idle, schedule: "@at 2099-01-01T00:00:00Z"`,
		`name: split, schedule: "@at 2099-01-01T00:00:00Z", overlap: allow, shards: 2`))
	p := start(t, "client", s.env(), nil, node, s.program("client", clientProgram), s.url)
	if code := p.exit(); code != 0 {
		t.Fatalf("exit status %d: %s", code, p.stderr())
	}
	got := map[string]string{}
	for line := range strings.Lines(p.stdout()) {
		var pair [2]json.RawMessage
		var name string
		if err := json.Unmarshal([]byte(line), &pair); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(pair[0], &name); err != nil {
			t.Fatal(err)
		}
		got[name] = string(pair[1])
	}
	for name, want := range map[string]string{
		"ids":       `["pay:@one","pay:@one","pay:@one"]`,
		"one":       `{"id":"pay:@one","state":"succeeded","attempt":1,"node":true,"output":"paid","result":"{\"n\":1}","finished":true,"revision":true}`,
		"again":     `"pay:@one"`,
		"default":   `"{\"n\":7}"`,
		"wrong":     `{"state":"failed","error":"no account","attempt":1}`,
		"retried":   `2`,
		"set twice": `"pay:@later"`,
		"later":     `true`,
		"waits":     `["cronce.timer.set.idle.two"]`,
		"random":    `true`,
		"no job":    `"Error: trigger unknown: there is no such job in namespace cronce"`,
		"large":     `"RangeError: `,
		"not JSON":  `"TypeError: `,
		"no time":   `"TypeError: `,
		"no key":    `"Invalid: `,
		"split":     `"Error: trigger split:@`,
		"no slot":   `"Invalid: `,
		"given up":  `"DOMException: `,
		"calls":     `[["pay:@one",1]]`,
	} {
		if !strings.HasPrefix(got[name], want) {
			t.Errorf("%s: %s, want %s", name, got[name], want)
		}
	}
}

// A run keeps the number of shards that its job had when it was ordered.
func TestJavaScriptFindsATimerFromBeforeAnEditOfTheShards(t *testing.T) {
	t.Parallel()
	node := needNode(t)
	s := newServedSite(t)
	s.command(0, "setup", "--lease", lease.String())
	const report = `name: report, schedule: "@at 2099-01-01T00:00:00Z", overlap: allow`
	for _, shards := range []int{3, 2} {
		s.command(0, "job", "apply", "-f", s.jobs("false", fmt.Sprintf("%s, shards: %d", report, shards)))
		s.command(0, "job", "trigger", "report", "--key", fmt.Sprint("of", shards), "--at", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}
	s.command(0, "job", "apply", "-f", s.jobs("false", report))
	p := start(t, "client", s.env(), nil, node, s.program("client", `
import { connect, trigger } from "@cronce-io/client";
const nc = await connect({ servers: process.argv[2] });
for (const key of ["of3", "of2"]) console.log(await trigger(nc, "report", { key }));
await nc.close();
`), s.url)
	if code := p.exit(); code != 0 || p.stdout() != "report:@of3\nreport:@of2\n" {
		t.Fatalf("exit status %d: %s%s", code, p.stdout(), p.stderr())
	}
	stream, err := s.js.Stream(t.Context(), "cronce_slots")
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.LastSeq; n > 0 {
		t.Errorf("the client published %d messages for runs that have timers", n)
	}
}

// If the stream does not answer whether a message of the run waits, trigger fails: a second message could run it
// again.
func TestJavaScriptTriggersNoRunThatMayAlreadyWait(t *testing.T) {
	t.Parallel()
	node := needNode(t)
	s := newServedSite(t)
	s.command(0, "setup", "--lease", lease.String())
	s.command(0, "job", "apply", "-f", s.jobs("false", `name: idle, schedule: "@at 2099-01-01T00:00:00Z"`))
	silent := natstest.NewProxy(t, s.url)
	silent.Set(proxy.Fault{Lose: []byte("$JS.API.DIRECT.GET.cronce_slots")})
	p := start(t, "client", s.env(), nil, node, s.program("client", `
import { connect, trigger } from "@cronce-io/client";
const nc = await connect({ servers: process.argv[2] });
const said = trigger(nc, "idle", { key: "one" }).then((id) => "ordered " + id, (err) => err.name);
console.log(await said);
await nc.close();
`), silent.URL())
	if code := p.exit(); code != 0 {
		t.Fatalf("exit status %d: %s", code, p.stderr())
	}
	stream, err := s.js.Stream(t.Context(), "cronce_slots")
	if err != nil {
		t.Fatal(err)
	}
	if said, n := strings.TrimSpace(p.stdout()), stream.CachedInfo().State.LastSeq; said != "TimeoutError" || n > 0 || !silent.HasLost() {
		t.Errorf("trigger ended with %q after %d messages; requests were lost: %v; want a TimeoutError after 0 messages, and lost requests", said, n, silent.HasLost())
	}
}

// A registry that was created again has a new history. The client begins anew with it, under another name of its
// node, and forgets the jobs of the old one.
func TestJavaScriptFollowsARegistryThatWasCreatedAgain(t *testing.T) {
	t.Parallel()
	needNode(t)
	s := newServedSite(t)
	const never = `schedule: "@at 2099-01-01T00:00:00Z", overlap: allow`
	s.command(0, "setup", "--lease", lease.String())
	s.command(0, "job", "apply", "-f", s.jobs("false", "name: old, "+never, "name: pay, "+never))
	p := s.javascriptWorking("js", "10", "pay", "old")
	p.says("takes part")
	if err := s.js.DeleteStream(t.Context(), "KV_cronce_jobs"); err != nil {
		t.Fatal(err)
	}
	s.command(0, "setup")
	s.command(0, "job", "apply", "-f", s.jobs("false", "name: pay, "+never))
	p.says("created again, or restored")
	eventually(t, "the client to take part again", func() bool { return strings.Count(p.stderr(), "takes part") == 2 })
	s.command(0, "job", "trigger", "pay", "--key", "new")
	eventually(t, "a run by the new definition", func() bool {
		rows := s.slots("--job", "pay")
		return len(rows) == 1 && rows[0].State == "succeeded"
	})
}
