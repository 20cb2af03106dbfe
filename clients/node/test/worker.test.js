import test from "node:test";
import assert from "node:assert/strict";
import { parseEntry } from "../lib/definition.js";
import { parseMessage } from "../lib/message.js";
import { Store, pause, turn } from "../lib/store.js";
import { parseInstant } from "../lib/values.js";
import { Worker, add, consumerConfig } from "../lib/worker.js";

test("a slot that ends whatever the definition says ends although the definition cannot be read", async () => {
  const now = parseInstant("2026-11-21T07:00:00Z"), old = "j:2026-11-19T07:00:00Z", young = "j:2026-11-21T07:00:00Z", late = "j:2026-11-21T06:00:00Z";
  const node = { name: "n", now: () => now, own: () => 0, clock: { error: () => 0 }, implausible: false, trusted: () => true, signal: new AbortController().signal };
  const registry = { entries: new Map(), async entry() { throw new Error("its definition cannot be read"); } };
  for (const [headers, record, state] of [
    [{ "Cronce-Slot": late, "Cronce-Missed": "1" }, undefined, "missed"],
    [{ "Cronce-Slot": young, "Cronce-Missed": "1" }, undefined, undefined], // a producer leaves out no slot that is due now
    [{ "Cronce-Slot": young, "Cronce-Refused": "too large" }, undefined, undefined], // nor refuses a planned one
    [{ "Cronce-Slot": "j:m.2026-11-20T07:00:00Z" }, undefined, "missed"],
    [{ "Cronce-Slot": "j:@k", "Nats-Msg-Id": "j:@k/r2", "Cronce-Refused": "lost" }, undefined, "failed"],
    [{ "Cronce-Slot": old }, undefined, "expired"],
    [{ "Cronce-Slot": old }, { v: 1, id: old, state: "retrying", attempt: 1, retry_at: "2026-11-21T08:00:00Z" }, "failed"],
    [{ "Cronce-Slot": young }, undefined, undefined],
    [{ "Cronce-Slot": young }, { v: 1, id: young, state: "retrying", attempt: 1, retry_at: "2026-11-21T06:59:00Z" }, undefined],
  ]) {
    const written = [];
    const store = {
      namespace: "ns", nc: { publish() {} },
      async read(bucket) { return bucket === "state" ? { revision: 0 } : { value: record, revision: record ? 3 : 0 }; },
      async write(bucket, key, value) { written.push(value.state); return { won: 4 }; },
      async publish() { return { seq: 5 }; },
    };
    const worker = new Worker({ store, node, registry, horizon: 24 * 3_600_000, queues: [], handlers: { j() {} }, log() {} });
    const work = worker.work({ message: parseMessage((name) => headers[name] ?? ""), queue: "default", published: now, count: 1, payload: Buffer.alloc(0) }, "key", {});
    if (state) assert.deepEqual(await work, { ack: true });
    else await assert.rejects(work, /cannot be read/);
    assert.deepEqual(written, state ? [state] : [], JSON.stringify(headers));
  }
});

test("no more slots are in flight than there are places", async (t) => {
  const now = parseInstant("2026-11-21T07:00:00Z"), answers = [];
  const node = { name: "n", lease: 3000, now: () => now, trusted: () => true, signal: new AbortController().signal };
  const worker = new Worker({ store: {}, node, registry: {}, horizon: 0, queues: ["q"], handlers: {}, places: 1, log() {} });
  const message = (id) => ({
    headers: new Map([["Cronce-Slot", id]]), subject: "ns.slot.q.j", timestampNanos: now, info: { deliveryCount: 1 }, data: Buffer.alloc(0),
    working() {}, ack: () => answers.push(`ack ${id}`), nak: () => answers.push(`nak ${id}`),
  });
  let end;
  const ended = new Promise((done) => { end = () => done({ ack: true }); });
  t.after(end);
  worker.work = () => ended;
  const tasks = [worker.task(message("j:@1"), "q"), worker.task(message("j:@2"), "q")];
  await worker.task(message("j:@3"), "q", performance.now()); // its time to wait is over
  assert.deepEqual(answers, ["nak j:@3"]);
  end();
  await Promise.all(tasks);
  assert.deepEqual([answers, worker.waiting.size], [["nak j:@3", "ack j:@1", "ack j:@2"], 0]);
});

test("a handler of an older incarnation that does not end keeps its place", async () => {
  const { worker } = fake({ places: 1, inflight: new Map([["other", { node: "older" }]]) });
  assert.deepEqual([worker.free, worker.running], [0, 0]);
});

test("an attempt may have any timeout", async () => {
  const node = { name: "n", signal: new AbortController().signal };
  // A timer of Node.js would end the first one at once, and refuse the others.
  for (const [timeout, ends] of [["720h0m0s", false], ["1200h0m0s", false], ["1.5ms", true]]) {
    const handlers = { j: (slot) => pause(100, slot.signal).then(() => String(slot.signal.aborted)) };
    const worker = new Worker({ store: {}, node, registry: {}, horizon: 0, queues: [], handlers, log() {} });
    const job = { name: "j", timeout, backoff: "1s", max_backoff: "1s" };
    const { output } = await worker.handle({ payload: Buffer.alloc(0) }, { controller: new AbortController() }, { id: "j:@k", attempt: 1 }, 1, { job });
    assert.equal(output, String(ends), timeout);
  }
});

const instant = parseInstant("2026-11-21T07:00:00Z");
const job = (more) => parseEntry(JSON.stringify({ v: 1, job: { name: "j", overlap: "allow", plan: { schedule: "@hourly" }, ...more } }), 1, parseInstant("2026-11-01T00:00:00Z"));
const delivery = (id) => ({ message: parseMessage((name) => (name === "Cronce-Slot" ? id : "")), queue: "default", published: instant, count: 1, payload: Buffer.alloc(0) });

// fake returns a worker with a ledger in memory: written has the records, and published the messages.
function fake({ entry = job(), handlers = { j() {} }, node, request, ...more } = {}) {
  const written = [], published = [];
  const ended = new AbortController();
  node = { name: "n", lease: 3000, now: () => instant, own: () => 0, clock: { error: () => 0 }, implausible: false, trusted: () => !ended.signal.aborted, signal: ended.signal, ...node };
  const store = {
    namespace: "ns", nc: { publish() {}, request },
    async read(bucket) { return bucket === "state" ? { revision: 0 } : { value: written.at(-1), revision: written.length }; },
    async write(bucket, key, value, revision) { return revision === written.length ? { won: written.push(value) } : { lost: true }; },
    async publish(subject, body) { return { seq: published.push({ subject, body: JSON.parse(body) }) }; },
  };
  const registry = { entries: new Map(), entry: async () => entry };
  return { worker: new Worker({ store, node, registry, horizon: 24 * 3_600_000, queues: [], handlers, log() {}, ...more }), written, published, ended };
}

test("an attempt ends once, whatever its handler throws", async () => {
  const circle = new Error("a circle"), deep = [9, 8, 7, 6, 5, 4, 3, 2, 1].reduce((cause, n) => new Error(`${n}`, { cause }), undefined);
  circle.cause = circle;
  for (const [thrown, error] of [
    [undefined, "failed, and did not say why"], [null, "failed, and did not say why"], ["a text", "a text"], [{ message: 7 }, "7"], [new Error(""), "failed, and did not say why"],
    [Object.create(null), "{}"], [{ status: 500 }, '{"status":500}'], [Object.assign(new Error("later"), { retryAfter: NaN }), "later"],
    [new TypeError("fetch failed", { cause: new Error("connect ECONNREFUSED 127.0.0.1:1") }), "fetch failed: connect ECONNREFUSED 127.0.0.1:1"],
    [new Error("fetch failed", { cause: new AggregateError([new Error("::1 refused"), new Error("127.0.0.1 refused")]) }), "fetch failed: ::1 refused; 127.0.0.1 refused"],
    [new Error("send: no route", { cause: new Error("no route") }), "send: no route"], [circle, "a circle"], [deep, "1: 2: 3: 4: 5"], [new Error("text", { cause: "a text" }), "text: a text"], [{ get message() { throw new Error("x"); } }, "failed, and did not say why"], [{ message: "later", get retryAfter() { throw new Error("x"); } }, "later"], [Object.assign(new Error("later"), { retryAfter: Infinity }), "later"],
    [Object.assign(new Error("later"), { retryAfter: "soon" }), "later"],
  ]) {
    let starts = 0;
    const { worker, written } = fake({ handlers: { j() { starts++; throw thrown; } } });
    assert.ok((await worker.work(delivery("j:@k"), "key", { controller: new AbortController() })).nak > 0);
    assert.deepEqual([starts, written.at(-1).state, written.at(-1).error], [1, "retrying", error]);
  }
});

test("a result is stored as it was when the handler set it", async () => {
  const { worker, written } = fake({ handlers: { j(slot) { const value = { n: 1 }; slot.result(value); value.self = value; } } });
  await worker.work(delivery("j:@k"), "key", { controller: new AbortController() });
  assert.deepEqual(written.at(-1).result, { n: 1 });
});

test("the context of a handler ends with the node's trust, and leaves no listener on the node", async () => {
  const listeners = new Set(), signal = new AbortController().signal;
  signal.addEventListener = (_, f) => listeners.add(f);
  signal.removeEventListener = (_, f) => listeners.delete(f);
  let seen;
  const handlers = { async j(slot) { slot.signal.addEventListener("abort", () => {}); for (const lost of listeners) lost(); seen = slot.signal.aborted; } };
  const { worker } = fake({ handlers, node: { signal } });
  await worker.work(delivery("j:@k"), "key", { controller: new AbortController() });
  assert.deepEqual([seen, listeners.size], [true, 0]);
});

test("an attempt whose timeout is over is not ended by a cancel", async () => {
  let answer;
  const handlers = {
    j: (slot) => new Promise((done) => slot.signal.addEventListener("abort", () => {
      worker.requests.answer({ string: () => JSON.stringify({ v: 1, id: slot.id, fence: slot.fence, by: "ops" }), respond: (text) => { answer = JSON.parse(text); } });
      done();
    })),
  };
  const { worker } = fake({ entry: job({ timeout: "1ms" }), handlers });
  const flight = { node: "n", controller: new AbortController() };
  worker.inflight.set("j.t.k", flight);
  await worker.work(delivery("j:@k"), "j.t.k", flight);
  assert.equal(answer.ending, false);
});

test("two fleets in one process do not share their slots", async () => {
  let end;
  const blocked = new Promise((done) => { end = done; }), answers = [];
  const message = () => ({ headers: new Map([["Cronce-Slot", "j:@k"]]), subject: "ns.slot.q.j", timestampNanos: instant, info: { deliveryCount: 1 }, data: Buffer.alloc(0), working() {}, ack: () => answers.push("ack"), nak: () => answers.push("nak") });
  const one = fake({ handlers: { j: () => blocked } }).worker, other = fake().worker;
  const first = one.task(message(), "q");
  await other.task(message(), "q");
  assert.deepEqual(answers, ["ack"]);
  end();
  await first;
});

test("a node without trust answers no message", async () => {
  const answers = [];
  const message = (id, subject) => ({ headers: new Map([["Cronce-Slot", id]]), subject, timestampNanos: instant, term: () => answers.push("term"), nak: () => answers.push("nak"), working: () => answers.push("working") });
  const { worker, ended } = fake();
  worker.inflight.set("j.t.k", { node: "an older incarnation" });
  ended.abort();
  await worker.task(message("j:@k", "ns.slot.q.other"), "q");
  await worker.task(message("no slot", "ns.slot.q.j"), "q");
  await worker.task(message("j:@k", "ns.slot.q.j"), "q");
  assert.deepEqual(answers, []);
});

test("a claim is not sent by a process that slept since it decided", async () => {
  let slept = false;
  const sent = [], ended = new AbortController();
  const trusted = () => { if (slept) ended.abort(); return !slept; };
  const { worker } = fake({ node: { trusted, signal: ended.signal } });
  worker.store = new Store({ publish() {}, async request(subject) {
    if (subject.startsWith("$KV")) sent.push(subject);
    slept = true; // while the answer to its read is under way
    return { json: () => ({ error: { err_code: 10037 } }) };
  } }, "ns");
  assert.equal(await worker.work({ ...delivery("j:@k"), count: 2 }, "j.t.k", { controller: new AbortController() }), undefined);
  assert.deepEqual(sent, []);
});

test("an outcome of a job that was deleted gives no alert, and one of an unknown job does", async () => {
  for (const [entry, alerts] of [[undefined, 0], [Promise.reject(new Error("it cannot be read")), 1]]) {
    await Promise.allSettled([entry]);
    const { worker, published } = fake();
    worker.registry.entry = async () => entry;
    const d = delivery("j:m.2026-11-20T07:00:00Z");
    await worker.work(d, "key", {});
    await worker.work(d, "key", {}); // and again, for the record that it finds
    assert.equal(published.length, 2 * alerts);
  }
});

test("an alert has the end of the output", async () => {
  const entry = job({ on_failure: { nats: { subject: "alerts" } }, attempts: 1 });
  const { worker, written, published } = fake({ entry });
  written.push({ v: 1, id: "j:@k", state: "failed", output: `a${"é".repeat(2000)}`, finished: "2026-11-21T07:00:00Z" });
  await worker.work(delivery("j:@k"), "key", {});
  assert.equal(published[0].body.output, "é".repeat(1536));
});

test("the owner of a claim is asked on a reply subject that any node may publish to", async () => {
  const replies = [];
  const { worker } = fake({ request: async (subject, body, { reply }) => { replies.push(reply); throw new Error("timeout"); } });
  assert.equal(await worker.requests.disowns({ id: "j:@k", node: "other" }, 3, false), false);
  assert.match(replies[0], /^ns\.reply\./);
});

test("a queue's consumer has a priority policy on a server that knows it", () => {
  for (const [version, policy] of [["2.11.10", undefined], ["2.12.0-RC.1", "prioritized"], ["2.9.1", undefined], ["3.0.0", "prioritized"]]) {
    assert.equal(consumerConfig("q", "s", 1000.0001, version).priority_policy, policy, version);
  }
  assert.equal(consumerConfig("q", "s", 1000.0000001, "2.12.0").ack_wait, 1_000_000_000);
});

test("a record is cut to what the server takes", async () => {
  const { worker, written } = fake({ entry: job({ output: 65_536 }), handlers: { j: () => "x".repeat(60_000) } });
  worker.store.nc.info = { max_payload: 32_768 };
  await worker.work(delivery("j:@k"), "key", { controller: new AbortController() });
  assert.ok(JSON.stringify(written.at(-1)).length < 32_768);
});

test("a worker has no handler for a job that is named like a method of every object", async () => {
  const now = parseInstant("2026-11-21T07:00:00Z");
  const node = { name: "n", now: () => now, own: () => 0, clock: { error: () => 0 }, implausible: false, trusted: () => true, signal: new AbortController().signal };
  for (const job of ["constructor", "toString", "__proto__"]) {
    const entry = parseEntry(JSON.stringify({ v: 1, job: { name: job, overlap: "allow", plan: { schedule: "none" } } }), 1, now);
    const registry = { entries: new Map(), async entry() { return entry; } };
    const store = { async read() { return { revision: 0 }; }, async write() { throw new Error("it claims the slot"); } };
    const worker = new Worker({ store, node, registry, horizon: 24 * 3_600_000, queues: [], handlers: { j() {} }, log() {} });
    const message = parseMessage((name) => ({ "Cronce-Slot": `${job}:@k`, "Cronce-Job-Revision": "1" })[name] ?? "", `ns.slot.q.${job}`);
    assert.deepEqual(await worker.work({ message, queue: "default", published: now, count: 1, payload: Buffer.alloc(0) }, "key", {}), { nak: 200 }, job);
  }
});

test("a slot that waits for its next attempt is given back for an hour at most, and by the clock of its last attempt", async () => {
  const failing = () => { throw Object.assign(new Error("later"), { retryAfter: 5 * 3_600_000 }); };
  const { worker } = fake({ handlers: { j: failing } });
  assert.deepEqual(await worker.work(delivery("j:@k"), "key", { controller: new AbortController() }), { nak: 3_600_000 });
  let now = instant; // the clock is set back while the attempt's outcome is written
  const set = fake({ handlers: { j() { throw Object.assign(new Error("later"), { retryAfter: 2000 }); } }, node: { now: () => now } }).worker;
  const write = set.store.write;
  set.store.write = (...args) => { if (args[2].state === "retrying") now -= 1_000_000_000n * 600n; return write(...args); };
  assert.deepEqual(await set.work(delivery("j:@k"), "key", { controller: new AbortController() }), { nak: 2000 });
});

const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;

test("a worker that has stopped leaves no timer behind, which would keep its process alive", async () => {
  const before = timers();
  const { worker, ended } = fake();
  worker.store.nc.subscribe = () => ({ unsubscribe() {} });
  worker.serve = async () => {};
  const stop = new AbortController();
  const run = worker.run(stop.signal, 3_600_000);
  stop.abort();
  await run;
  assert.equal(timers() - before, 0);
  ended.abort();
});

test("an outcome whose handler returned in time is written although the node's trust ends before the answer", async () => {
  for (const [late, states] of [[false, ["running", "succeeded"]], [true, ["running"]]]) {
    const life = new AbortController();
    const { worker, written, ended } = fake({ life: life.signal, handlers: { j() { if (late) ended.abort(); } } });
    const write = worker.store.write;
    worker.store.write = async (bucket, key, record, revision, { signal, trusted }) => {
      if (record.state === "succeeded") ended.abort();
      return signal.aborted || !trusted() ? { unknown: true } : write(bucket, key, record, revision);
    };
    await worker.work(delivery("j:@k"), "key", { controller: new AbortController() });
    assert.deepEqual(written.map((r) => r.state), states, late ? "the handler returned too late" : "it returned in time");
  }
});

test("a claim that was not started is released only while the node has trust", async () => {
  const { worker, written, ended } = fake({ life: new AbortController().signal });
  worker.stopping = true;
  const write = worker.store.write;
  worker.store.write = async (bucket, key, record, revision, { signal }) => {
    if (record.state === "retrying") ended.abort();
    return signal.aborted ? { unknown: true } : write(bucket, key, record, revision);
  };
  await worker.work(delivery("j:@k"), "key", { controller: new AbortController() });
  assert.deepEqual(written.map((r) => r.state), ["running"]);
});

test("the outcome of a claim that the ledger lost is written over what it has, unless another worker has the slot", async () => {
  const stored = (more) => ({ v: 1, id: "j:@k", state: "running", node: "other", attempt: 0, ...more });
  for (const [value, won] of [
    [undefined, true], [stored(), true], [stored({ node: "n", attempt: 1 }), true], [stored({ state: "retrying", node: "n" }), true],
    [stored({ attempt: 1 }), false], [stored({ attempt: 2 }), false], [stored({ node: "n", attempt: 2 }), false], [stored({ state: "failed" }), false], [stored({ state: "retrying", attempt: 1 }), false],
  ]) {
    const at = [];
    const { worker } = fake();
    worker.store.read = async () => (at.length ? { value, revision: 7 } : { revision: 0 });
    worker.store.write = async (bucket, key, record, revision) => {
      at.push(revision);
      return at.length === 2 ? { lost: true } : { won: 3 };
    };
    await worker.work(delivery("j:@k"), "key", { controller: new AbortController() });
    assert.deepEqual(at, won ? [0, 3, 7] : [0, 3], JSON.stringify(value));
  }
});

test("an attempt succeeds whatever its handler returns", async () => {
  const circle = {};
  circle.self = circle;
  for (const [returned, output] of [[undefined, undefined], [null, undefined], ["", undefined], [7, "7"], [["a", 1], '["a",1]'], [Object.create(null), "{}"], [Symbol("s"), "Symbol(s)"], [{ sent: 3 }, '{"sent":3}'], [{ n: 1n }, "[object Object]"], [{ toJSON() {} }, "[object Object]"], [Buffer.from("bytes"), "bytes"], [circle, "[object Object]"]]) {
    const { worker, written } = fake({ handlers: { j: () => returned } });
    await worker.work(delivery("j:@k"), "key", { controller: new AbortController() });
    assert.deepEqual([written.at(-1).state, written.at(-1).output], ["succeeded", output]);
  }
});

test("a worker that stops starts no slot that arrives", async () => {
  const answers = [], starts = [];
  const { worker } = fake({ handlers: { j() { starts.push("start"); } } });
  worker.stop = AbortSignal.abort();
  await worker.task({ headers: new Map([["Cronce-Slot", "j:@k"]]), subject: "ns.slot.q.j", timestampNanos: instant, info: { deliveryCount: 1 }, data: Buffer.alloc(0), working() {}, ack: () => answers.push("ack"), nak: (ms) => answers.push(ms) }, "q");
  assert.deepEqual([answers, starts], [[100], []]);
});

test("a worker runs as many slots as it has places, also if one of its consumers has them all", async () => {
  for (const [places, queues, most] of [[16, ["q"], 16], [2, ["q"], 2], [1, ["q"], 1], [10, ["q", "r"], 10]]) {
    const stop = new AbortController(), started = [], answers = [];
    let end;
    const blocked = new Promise((done) => { end = done; });
    const { worker } = fake({ places, queues, handlers: { j(slot) { started.push(slot.id); return blocked; } } });
    let n = 0;
    const message = () => {
      const id = `j:@${n++}`;
      return { headers: new Map([["Cronce-Slot", id]]), subject: "ns.slot.q.j", timestampNanos: instant, info: { deliveryCount: 1 }, data: Buffer.alloc(0), working() {}, ack: () => answers.push("ack"), nak: () => answers.push("nak") };
    };
    const asked = new Map();
    Object.assign(worker.store, { read: async () => ({ revision: 0 }), write: async () => ({ won: 1 }) });
    worker.consumer = async (stream, queue) => ({
      fetch: async ({ max_messages }) => (async function* () {
        asked.set(stream + queue, max_messages);
        if (stream === "slots" && queue === "q") for (let i = 0; i < max_messages; i++) yield message();
        else await pause(1);
      })(),
    });
    const serving = ["slots", "timers"].flatMap((stream) => queues.map((queue) => worker.serve(stream, queue, queue, stop.signal)));
    while (started.length < most) await pause(1);
    await pause(60); // three rounds of each consumer
    assert.deepEqual([started.length, answers, asked.get("timersq")], [most, [], 1], `${places} places, ${queues}`);
    stop.abort();
    end();
    await Promise.all([...serving, ...worker.tasks]);
  }
});

test("the events of a takeover say who was declared dead, and which claim followed", async () => {
  const ran = (more) => ({ v: 1, id: "j:@k", state: "running", node: "other", attempt: 1, max_attempts: 2, published: "2026-11-21T07:00:00Z", attempts: [{ attempt: 1, node: "other", started: "2026-11-21T07:00:00Z" }], ...more });
  for (const [dead, record, kinds] of [
    [{ dead: true, fenced: true }, ran(), ["fenced other", "takeover 2 of 2", "succeeded 2 of 2"]],
    [{ dead: true }, ran(), ["takeover 2 of 2", "succeeded 2 of 2"]], // another node has declared it dead, or it has stopped
    [{ dead: true }, ran({ max_attempts: 1 }), ["failed 1 of 1"]],
  ]) {
    const { worker, written } = fake({ node: { dead: async () => dead } }), events = [];
    worker.store.nc.publish = (subject, body) => {
      const e = JSON.parse(body);
      events.push(`${e.kind} ${e.kind === "fenced" ? e.peer : `${e.attempt} of ${e.fence}`}`);
    };
    written.push(record);
    await worker.work(delivery("j:@k"), "key", { controller: new AbortController() });
    await turn();
    assert.deepEqual(events, kinds);
  }
});

test("an event on a closed connection is left out", async () => {
  const { worker } = fake();
  worker.store.nc.publish = () => { throw new Error("the connection is closed"); };
  worker.emit("succeeded", { job: "j" });
  await turn(); // a rejection that nothing handles would end the process
  await pause(1);
});

test("an answer is not sent by a process that slept just before", async () => {
  const answers = [], { worker, ended } = fake();
  const settled = worker.settle({ ack: () => answers.push("ack") }, { ack: true });
  ended.abort();
  await settled;
  assert.deepEqual(answers, []);
});

test("a handler reads its payload as a value, and fails for good if it is not JSON", async () => {
  for (const [payload, state, output] of [['{"n":1}', "succeeded", '{"n":1}'], ["", "succeeded", ""], ["{", "failed", undefined]]) {
    const { worker, written } = fake({ handlers: { j: (slot) => JSON.stringify(slot.json()) } });
    await worker.work({ ...delivery("j:@k"), payload: Buffer.from(payload) }, "key", { controller: new AbortController() });
    const { state: got, output: text = "" } = written.at(-1);
    assert.deepEqual([got, text], [state, output ?? ""]);
  }
});

test("a first delivery is claimed without a read, and any other by the record", async () => {
  const ended = { v: 1, id: "j:@k", state: "succeeded", attempt: 1, finished: "2026-11-21T07:00:00Z" }, retried = { ...ended, state: "retrying", finished: undefined };
  const guarded = job({ overlap: "queue" });
  for (const [count, record, reads, states, more] of [
    [1, undefined, 0, ["running", "succeeded"]], [2, undefined, 1, ["running", "succeeded"]], [1, ended, 1, []], [1, retried, 1, ["running", "succeeded"]],
    [1, undefined, 1, [], { handlers: {} }], [1, undefined, 0, [], { entry: guarded }],
  ]) {
    const { worker, written } = fake(more), read = worker.store.read;
    let n = 0;
    worker.store.read = (...args) => { n++; return read(...args); };
    worker.locks = { enter: async () => { throw new Error("not answered"); }, leave: async () => {} };
    if (record) written.push(record);
    await worker.work({ ...delivery("j:@k"), count }, "key", { controller: new AbortController() }).catch((err) => assert.equal(err.message, "not answered"));
    assert.deepEqual([n, written.slice(record ? 1 : 0).map(({ state }) => state)], [reads, states], `delivery ${count}, ${record?.state}`);
  }
});

test("a place in a lock counts only for the record with which the slot entered", async () => {
  const { worker, written } = fake({ entry: job({ overlap: "skip" }) });
  const entered = [], places = [{ kind: "skipped", inWay: "j:@other" }, { kind: "held" }];
  worker.locks = {
    async enter() {
      entered.push(written.length);
      if (written.length === 0) written.push({ v: 1, id: "j:@k", state: "retrying", attempt: 1, max_attempts: 3, retry_at: "2026-11-21T07:00:00Z" }); // by another worker
      return places.shift();
    },
    async leave() {},
  };
  await worker.work(delivery("j:@k"), "key", { controller: new AbortController() });
  assert.deepEqual([entered, written.map((r) => r.state)], [[0, 1], ["retrying", "running", "succeeded"]]);
});

test("a place is free when its handler has returned, although the outcome is not answered", async () => {
  const { worker } = fake({ places: 1 });
  let answer, n = 0;
  const answered = new Promise((done) => { answer = done; });
  worker.store.write = async (bucket, key, value) => { if (value.state === "succeeded") await answered; return { won: 1 }; };
  const message = () => {
    const id = `j:@${n++}`;
    return { headers: new Map([["Cronce-Slot", id]]), subject: "ns.slot.q.j", timestampNanos: instant, info: { deliveryCount: 1 }, data: Buffer.alloc(0), working() {}, ack() {}, nak() {} };
  };
  const tasks = [];
  for (let i = 1; i <= 8; i++) {
    tasks.push(worker.task(message(), "q"));
    await pause(0);
    assert.deepEqual([worker.running, worker.free], [i, i < 8 ? 1 : 0]);
  }
  answer();
  await Promise.all(tasks);
  assert.equal(worker.free, 1);
});

test("a slot that finds no place stands in its job's line, takes nothing in the process, and is acked", async () => {
  const { worker, written } = fake({ entry: job({ overlap: "queue" }), places: 1 }), flight = { node: "n", controller: new AbortController() };
  worker.inflight.set("j.t.k", flight);
  const stood = [];
  worker.locks = { enter: async () => ({ kind: "waits" }), stand: async (name, slot, revision) => stood.push([name, slot.id, revision, worker.inflight.size, worker.free]) };
  assert.deepEqual(await worker.work(delivery("j:@k"), "j.t.k", flight), { ack: true });
  assert.deepEqual([written.map((r) => r.state), stood], [["waiting"], [["j", "j:@k", 1, 0, 1]]]);
});

test("the message of a slot that replaces another one goes back if the worker stops before that has ended", async () => {
  const { worker } = fake({ entry: job({ overlap: "replace" }) });
  for (const [left, answer] of [[true, { ack: true }], [false, { nak: 100 }]]) {
    worker.locks = { enter: async () => ({ kind: "waits", displaces: "j:@other" }), stand: async () => {}, displace: async () => left };
    worker.store.write = async () => ({ won: 1 });
    assert.deepEqual(await worker.work(delivery("j:@k"), "j.t.k", {}), answer);
  }
});

test("a slot leaves its lock before its message is acked, as the one that entered it or as one that found it", async () => {
  const guarded = job({ overlap: "queue", attempts: 1 }), running = { v: 1, id: "j:@k", state: "running", attempt: 1, max_attempts: 1, node: "m", published: "2026-11-21T06:59:00Z" };
  for (const [record, count, left] of [
    [undefined, 1, [["j:@k", false]]], // it ran here
    [running, 1, [["j:@k", true]]], // its worker died, and its attempts are spent
    [{ ...running, state: "failed", finished: "2026-11-21T07:00:00Z" }, 2, [["j:@k", true]]],
  ]) {
    const { worker, written } = fake({ entry: guarded, node: { dead: async () => ({ dead: true }) } }), calls = [];
    if (record) written.push(record);
    worker.locks = { enter: async () => ({ kind: "held" }), leave: async (...call) => calls.push(call) };
    assert.deepEqual(await worker.work({ ...delivery("j:@k"), count }, "j.t.k", { controller: new AbortController() }), { ack: true });
    assert.deepEqual(calls, left, record?.state);
    worker.locks.leave = async () => { throw new Error("not written"); };
    await assert.rejects(worker.work({ ...delivery("j:@k"), count: 2 }, "j.t.k", { controller: new AbortController() }), /not written/);
  }
});

test("a consumer is created with the server's limit of unacked messages", async () => {
  const asked = [], limit = 500, config = { durable_name: "q", max_ack_pending: 1_000_000 };
  const consumers = {
    async add(stream, { max_ack_pending: most }) {
      asked.push([stream, most]);
      if (most > limit) throw Object.assign(new Error(`consumer max ack pending exceeds system limit of ${limit}`), { code: 10121 });
      return { config };
    },
  };
  assert.deepEqual(await add(consumers, "s", config), { config });
  assert.deepEqual(asked, [["s", 1_000_000], ["s", limit]]);
  await assert.rejects(add({ add: async () => { throw Object.assign(new Error("no room"), { code: 10023 }); } }, "s", config), /no room/);
});
