import test from "node:test";
import assert from "node:assert/strict";
import { PermissionViolationError, headers } from "@nats-io/transport-node";
import { trigger, wait } from "../index.js";

// broker has the job j, and one message that waits in the stream of slots, of the run j:@k. It answers a
// direct request for the oldest message of a stream as oldest says; its clock is at now. answers are those to the first
// publications, in order; an Error is the failure of the request. nodes are the headers of nodes' answers, in order.
function broker(oldest, now, { answers = [], timers = true, past, nodes = [] } = {}) {
  const published = [], heads = [], asked = [], open = new Set();
  const definition = Buffer.from(JSON.stringify({ v: 1, job: { name: "j" }, past })).toString("base64");
  return {
    published, heads, asked, open,
    options: { inboxPrefix: "_INBOX" },
    features: { get: () => ({ ok: true }) },
    async request(subject, body, { headers: head } = {}) {
      if (subject.startsWith("$JS.API.DIRECT.GET.")) return oldest(subject);
      const json = (value) => ({ json: () => value });
      if (subject === "$JS.API.STREAM.MSG.GET.KV_cronce_jobs") return json({ message: { seq: 1, time: "2026-11-26T00:00:00Z", data: definition } });
      if (subject.startsWith("$JS.API.STREAM.INFO.")) return json(subject.endsWith("_timers") && !timers ? { error: { err_code: 10059 } } : { ts: now });
      if (subject.startsWith("$JS.API.")) return json({ error: { err_code: 10037 } });
      published.push(subject);
      heads.push(Object.fromEntries([...head].map(([name, values]) => [name, values[0]])));
      const answer = answers.shift() ?? { seq: 1 };
      if (answer instanceof Error) throw answer;
      return json(answer);
    },
    subscribe(inbox, { callback }) {
      open.add(callback);
      return { unsubscribe: () => open.delete(callback) };
    },
    publish(subject, body, { reply } = {}) {
      const head = headers();
      if (subject.includes(".api.later.")) {
        asked.push([subject, JSON.parse(body), reply.replace(/[^.]+$/, "*")]);
        const answer = nodes.shift();
        for (const [name, text] of Object.entries(answer ?? {})) head.set(name, text);
        if (answer) for (const callback of open) setImmediate(() => callback(null, { headers: head }));
        return;
      }
      head.set("Cronce-Slot", "j:@k");
      head.set("Nats-Num-Pending", "0");
      for (const callback of open) setImmediate(() => callback(null, { data: new Uint8Array(), headers: head }));
    },
  };
}

const stored = () => {
  const head = headers();
  head.set("Nats-Time-Stamp", "2026-11-26T00:00:00Z");
  return { headers: head };
};
const none = () => ({ headers: headers() });
const refuse = (cause) => { throw Object.assign(new Error("request failed"), { cause }); };

test("trigger publishes no run that waits for longer than the duplicate window by the broker's clock", async () => {
  for (const [now, published] of [["2026-11-26T00:01:44Z", ["cronce.slot.default=bulk.j"]], ["2026-11-26T00:02:00Z", []]]) {
    const nc = broker((subject) => (subject.endsWith("_slots") ? stored() : none()), now);
    assert.equal(await trigger(nc, "j", { key: "k" }), "j:@k");
    assert.deepEqual([nc.published, nc.open.size], [published, 0]);
  }
});

test("trigger publishes a run if its login may not look for one that waits", async () => {
  const nc = broker(() => refuse(new PermissionViolationError("no", "publish", "x")));
  await trigger(nc, "j", { key: "k" });
  assert.deepEqual(nc.published, ["cronce.slot.default=bulk.j"]);
});

test("trigger takes any timeout", async () => {
  for (const timeout of [Infinity, 2 ** 31, 1.5]) {
    const nc = broker(none, "2026-11-26T00:00:00Z");
    await trigger(nc, "j", { timeout });
    assert.equal(nc.published.length, 1);
  }
});

// The messages of its shards have other message IDs, so the stream would not fold the message of the whole.
test("trigger publishes no run that was ordered a moment ago, when its job split its slots", async () => {
  const past = [{ from: "2026-11-01T00:00:00Z", plan: { schedule: "none", shards: 2 } }];
  const nc = broker((subject) => (subject.endsWith("_slots") ? stored() : none()), "2026-11-26T00:00:10Z", { past });
  await trigger(nc, "j", { key: "k" });
  assert.deepEqual(nc.published, []);
});

// The deadline of the job and its lateness would count from the time in the past.
test("trigger for a time that has passed by the broker's clock is due when it is ordered", async () => {
  for (const [at, subject, due] of [
    ["2026-11-26T00:00:00Z", "cronce.slot.default=bulk.j", undefined], ["2026-11-25T00:00:00Z", "cronce.slot.default=bulk.j", undefined],
    ["2026-11-26T00:00:00.001Z", "cronce.timer.set.j.k", "2026-11-26T00:00:00.001Z"],
  ]) {
    const nc = broker(none, "2026-11-26T00:00:00Z");
    await trigger(nc, "j", { key: "k", at: new Date(at) });
    assert.deepEqual([nc.published, nc.heads[0]["Cronce-Due"]], [[subject], due], at);
  }
});

test("trigger refuses a time that no timer can have", async () => {
  const nc = broker(none, "2026-11-26T00:00:00Z");
  await assert.rejects(trigger(nc, "j", { at: new Date("2200-01-01T00:00:00Z") }), /before 2200/);
  assert.deepEqual(nc.published, []);
});

test("trigger says of a timer that was refused after an unanswered copy only that it is not known", async () => {
  const refused = { error: { err_code: 10077, description: "maximum messages exceeded" } };
  const nc = broker(none, "2026-11-26T00:00:00Z", { answers: [new Error("timeout"), refused, refused, { seq: 3 }] });
  await trigger(nc, "j", { key: "k", at: new Date("2026-11-27T00:00:00Z") });
  assert.equal(nc.published.length, 4);
});

test("trigger says why the server refuses a timer", async () => {
  for (const [answer, why] of [
    [{ error: { err_code: 10077, description: "maximum messages exceeded" } }, /^trigger j:@k: maximum messages exceeded$/],
    [{ error: { err_code: 10188, description: "message schedules is disabled" } }, /message schedules is disabled: .*nats-server 2.12/],
  ]) {
    const nc = broker(none, "2026-11-26T00:00:00Z", { answers: [answer] });
    await assert.rejects(trigger(nc, "j", { key: "k", at: new Date("2026-11-27T00:00:00Z") }), { message: why });
    assert.equal(nc.published.length, 1);
  }
});

// A timer chooses in its headers what the server does.
test("trigger asks nodes for a timer that its login may not set, until one answers", async () => {
  const denied = () => Object.assign(new Error("not permitted"), { cause: new PermissionViolationError("no", "publish", "x") });
  const order = { key: "k", payload: { n: 1 }, at: new Date("2026-11-27T00:00:00Z") }, busy = { "Nats-Service-Error-Code": "504", "Nats-Service-Error": "busy" };
  const nc = broker(none, "2026-11-26T00:00:00Z", { answers: [denied()], nodes: [busy, {}] });
  assert.equal(await trigger(nc, "j", order), "j:@k");
  const request = ["cronce.api.later.j", { key: "k", at: "2026-11-27T00:00:00.000Z", by: "node-client", payload: { n: 1 } }, "cronce.reply.later.j.*"];
  assert.deepEqual([nc.asked, nc.open.size], [[request, request], 0]);
  const refused = broker(none, "2026-11-26T00:00:00Z", { answers: [denied()], nodes: [{ "Nats-Service-Error-Code": "404", "Nats-Service-Error": "no such job" }] });
  await assert.rejects(trigger(refused, "j", order), { message: "trigger j:@k: no such job" });
  const alone = broker(none, "2026-11-26T00:00:00Z", { answers: [denied()] });
  await assert.rejects(trigger(alone, "j", { ...order, timeout: 200 }), /no node answers whose login may set timers; whether it runs is not known/);
});

test("trigger says at once that a namespace has no timers, or that the login may not trigger the job", async () => {
  const bare = broker(none, "2026-11-26T00:00:00Z", { timers: false });
  await assert.rejects(trigger(bare, "j", { key: "k", at: new Date("2026-11-27T00:00:00Z") }), /no stream of timers/);
  const denied = broker(none, "2026-11-26T00:00:00Z", { answers: [Object.assign(new Error("not permitted"), { cause: new PermissionViolationError("no", "publish", "x") })] });
  await assert.rejects(trigger(denied, "j", { key: "k" }), { message: "trigger j:@k: not permitted" });
  assert.deepEqual([bare.published.length, denied.published.length], [0, 1]);
});

test("wait rejects when the connection is closed for good, or the server refuses the read", async () => {
  const gone = new Error("closed"), disabled = { error: { err_code: 10039, description: "JetStream not enabled for account" } };
  await assert.rejects(wait({ isClosed: () => true, async request() { throw gone; } }, "j:@k", { signal: AbortSignal.timeout(2000) }), gone);
  await assert.rejects(wait({ isClosed: () => false, request: async () => ({ json: () => disabled }) }, "j:@k", { signal: AbortSignal.timeout(2000) }), /not enabled/);
  let n = 0;
  const record = Buffer.from(JSON.stringify({ v: 1, id: "j:@k", state: "failed" })).toString("base64");
  const busy = { isClosed: () => false, async request() {
    if (n++ === 0) throw new Error("timeout");
    return { json: () => (n === 2 ? { error: { err_code: 10008 } } : { message: { seq: 3, data: record } }) };
  } };
  assert.equal((await wait(busy, "j:@k")).state, "failed");
});

test("a namespace is refused that no program can have", async () => {
  const nc = { request() { throw new Error("it asks the broker"); } };
  await assert.rejects(trigger(nc, "j", { namespace: "a.b" }), /namespace "a.b"/);
  await assert.rejects(wait(nc, "j:@k", { namespace: "a b" }), /namespace "a b"/);
});

test("wait rejects if there is no such namespace", async () => {
  const nc = { request: async () => ({ json: () => ({ error: { err_code: 10059, description: "stream not found" } }) }) };
  await assert.rejects(wait(nc, "j:@k", { namespace: "typo", signal: AbortSignal.timeout(2000) }), /namespace typo: it has no ledger/);
});
