import test from "node:test";
import assert from "node:assert/strict";
import { PermissionViolationError, headers } from "@nats-io/transport-node";
import { fit } from "../lib/claim.js";
import { Store, abortAfter, decodeOf, pause, repeat, stopWith, turn, unlimited } from "../lib/store.js";

// slowBroker takes requests, and answers each one when the next one arrives, as answer says. A
// request that is not answered within its timeout fails.
function slowBroker(answer) {
  const waiting = [], sent = [];
  return {
    sent,
    request(subject, body, { headers, timeout }) {
      const n = sent.push({ subject, body: String(body), revision: headers?.get("Nats-Expected-Last-Subject-Sequence") }) - 1;
      return new Promise((done, failed) => {
        const timer = setTimeout(() => failed(new Error("timeout")), timeout);
        timer.unref();
        waiting.shift()?.();
        waiting.push(() => {
          clearTimeout(timer);
          done({ json: () => answer(n) });
        });
      });
    },
  };
}

const alive = setInterval(() => {}, 1000); // the timers above do not keep the process
test.after(() => clearInterval(alive));

const signal = () => AbortSignal.timeout(10_000);
const refused = { error: { err_code: 10077, description: "maximum bytes exceeded" } };

test("a write is won by the late answer to its first copy", async () => {
  const nc = slowBroker((n) => (n === 0 ? { seq: 7 } : refused));
  assert.deepEqual(await new Store(nc, "ns").write("ledger", "a.b", { v: 1 }, 3, { node: "me", signal: signal() }), { won: 7 });
  assert.equal(nc.sent.length, 2);
  assert.deepEqual(nc.sent[1], nc.sent[0], "the second copy differs from the first");
});

test("a write is not refused while a copy of it is open", async () => {
  const nc = slowBroker(() => refused);
  // Each copy is refused while the next one is open, so no refusal ends the write.
  const end = AbortSignal.timeout(2000);
  assert.deepEqual(await new Store(nc, "ns").write("ledger", "a.b", { v: 1 }, 3, { node: "me", signal: end }), { unknown: true });
  assert.ok(nc.sent.length > 1);
});

test("a write is not refused while a copy of it is about to be sent", async (t) => {
  const { setImmediate } = globalThis, sent = [];
  t.after(() => { globalThis.setImmediate = setImmediate; });
  globalThis.setImmediate = (send) => setImmediate(async () => {
    if (sent.length === 1) sent[0]({ json: () => refused }); // the answer to the first copy
    for (let i = 0; i < 10; i++) await undefined;
    send();
  });
  const nc = { request: () => new Promise((done) => { if (sent.push(done) === 2) done({ json: () => ({ seq: 7 }) }); }) };
  assert.deepEqual(await new Store(nc, "ns").write("ledger", "a.b", { v: 1 }, 3, { node: "me", signal: signal() }), { won: 7 });
});

test("what waits for one turn is published in it, in order", async () => {
  const order = [], all = [1, 2, 3].map(async (n) => { await turn(); order.push(n); });
  await undefined;
  assert.deepEqual(order, []);
  await turn();
  assert.deepEqual(order, [1, 2, 3]);
  await Promise.all(all);
});

test("a repetition ends with the first answer, with its signal, or with an error, and leaves nothing behind", async () => {
  const listeners = new Set(), end = new AbortController(), watched = {
    get aborted() { return end.signal.aborted; },
    addEventListener(_, f) { listeners.add(f); end.signal.addEventListener("abort", f); },
    removeEventListener(_, f) { listeners.delete(f); },
  };
  const copies = [];
  assert.equal(await repeat(async (n) => { copies.push(n); return n === 2 ? "answer" : undefined; }, () => 1, watched), "answer");
  await assert.rejects(repeat(async () => { throw new Error("no"); }, () => 1, watched), /no/);
  const silent = repeat(() => new Promise(() => {}), () => 1, watched);
  end.abort();
  assert.deepEqual([copies, await silent, await repeat(async () => "answer", () => 1, watched), listeners.size], [[0, 1, 2], undefined, undefined, 0]);
});

test("a publication is acknowledged by the late answer to its first copy", async () => {
  const { Producer } = await import("../lib/producer.js");
  const nc = slowBroker((n) => (n === 0 ? { seq: 7 } : refused)), end = signal();
  await new Producer({ store: new Store(nc, "ns"), node: { trusted: () => true }, log: () => {} }).publish({ queue: "q", job: "a", headers: {}, body: "" }, end);
  assert.equal(end.aborted, false);
  assert.equal(nc.sent.length, 2);
});

test("an answer that is no acknowledgement settles no write", async () => {
  const answers = [{}, null, { seq: 7 }], nc = { request: async () => ({ json: () => answers.shift() }) };
  assert.deepEqual(await new Store(nc, "ns").write("ledger", "a.b", { v: 1 }, 3, { node: "me", signal: signal() }), { won: 7 });
});

test("a refusal without a text is a refusal", async () => {
  const nc = { request: async () => ({ json: () => ({ error: { err_code: 10001, description: "" } }) }) };
  await assert.rejects(new Store(nc, "ns").write("ledger", "a.b", { v: 1 }, 3, { node: "me", signal: signal() }));
});

test("a pause and a limit may have any length", async () => {
  const end = new AbortController();
  let over = false;
  const long = [pause(Infinity, end.signal), pause(2 ** 31, end.signal)].map((p) => p.then(() => { over = true; }));
  const limits = [abortAfter(Infinity), abortAfter(2 ** 31)];
  await pause(20);
  assert.deepEqual([over, ...limits.map((s) => s.aborted)], [false, false, false]);
  end.abort();
  await Promise.all(long);
});

test("a caller, which may not read at the leader, reads from any replica, and a node does not", async () => {
  const definition = JSON.stringify({ v: 1, job: { name: "j", plan: { schedule: "@daily" } } }), denied = new PermissionViolationError("no", "publish", "x");
  const head = headers();
  for (const [name, text] of [["Nats-Sequence", "7"], ["Nats-Time-Stamp", "2026-11-21T07:00:00Z"]]) head.set(name, text);
  const nc = {
    async request(subject) {
      if (!subject.startsWith("$JS.API.DIRECT.GET.")) throw Object.assign(new Error("request"), { cause: denied });
      return subject.endsWith("$KV.ns_jobs.j") ? { headers: head, data: Buffer.from(definition) } : { headers: { code: 404 } };
    },
  };
  const caller = new Store(nc, "ns", { direct: true });
  assert.deepEqual([(await caller.read("jobs", "j")).revision, (await caller.read("jobs", "k")).revision], [7, 0]);
  assert.deepEqual([await caller.has("KV_ns_jobs", "$KV.ns_jobs.j"), await caller.has("KV_ns_jobs", "$KV.ns_jobs.k")], [true, false]);
  await assert.rejects(new Store(nc, "ns").read("jobs", "j"));
});

test("a write is lost to a later value that this program cannot read", async () => {
  const later = Buffer.from('{"v":2,"nonce":"other"}').toString("base64");
  const nc = {
    async request(subject) {
      if (subject.startsWith("$JS.API.STREAM.MSG.GET.")) return { json: () => ({ message: { seq: 4, time: "2026-11-21T07:00:00Z", data: later } }) };
      return { json: () => ({ error: { err_code: 10071, description: "wrong last sequence: 4" } }) };
    },
  };
  const end = AbortSignal.timeout(2000);
  assert.deepEqual(await new Store(nc, "ns").write("ledger", "a.b", { v: 1 }, 3, { node: "me", signal: end }), { lost: true });
});

test("any number of writes may wait for one signal without a warning", async () => {
  const warnings = [], warn = (w) => warnings.push(w.name);
  process.on("warning", warn);
  const signal = unlimited(new AbortController().signal);
  const writes = Array.from({ length: 20 }, () => pause(20, signal));
  await Promise.all(writes);
  process.off("warning", warn);
  assert.deepEqual(warnings, []);
});

test("an iterator ends with a signal, also with one that has aborted before", () => {
  for (const abort of [(c, stop) => { c.abort(); stop(); }, (c, stop) => { stop(); c.abort(); }]) {
    const controller = new AbortController();
    let stops = 0;
    abort(controller, () => stopWith(controller.signal, { stop: () => stops++ }));
    assert.equal(stops, 1);
  }
});

test("a value that is written again keeps unknown members as they were written", async () => {
  const unknown = `"x_big":12345678901234567890,"x_price":1.50,"x_list":[1e400, {"n":9007199254740993}],"__proto__":0.10,"x \\"y":1.0`;
  const sent = [], nc = { request: async (subject, body) => { sent.push(body); return { json: () => ({ seq: 5 }) }; } }, store = new Store(nc, "ns");
  for (const [bucket, key, known] of [
    ["ledger", "j.t.k", `"id":"j:@k","state":"retrying","attempt":1`], ["state", "lock.j", `"job":"j","holders":[]`],
    ["nodes", "n", `"node":"n","state":"alive"`], ["state", "watermark", `"time":"2026-11-21T07:00:00Z","registry_revision":7`],
  ]) {
    const value = decodeOf(bucket, key, `{"v":1,${known},${unknown}}`);
    await store.write(bucket, key, fit({ ...value, error: "x" }, 1_000_000), 4, { node: "me", signal: signal() });
    assert.ok(sent.at(-1).includes(unknown), sent.at(-1));
    assert.ok(decodeOf(bucket, key, sent.at(-1)).nonce.startsWith("me/"));
  }
});

// direct is a broker that answers direct gets of a stream with the messages 1 to most: answer(query) returns the answer's
// parts, [headers, data] or the milliseconds until the next one. open has the subscriptions.
function direct(answer) {
  const open = new Set(), asked = [];
  return {
    open, asked, options: { inboxPrefix: "_INBOX" },
    subscribe: (inbox, { callback }) => {
      open.add(callback);
      return { unsubscribe: () => open.delete(callback) };
    },
    publish(subject, body) {
      const query = JSON.parse(body), [callback] = [...open].slice(-1);
      asked.push(query);
      void (async () => {
        for (const part of answer(query)) {
          if (typeof part === "number") await pause(part);
          else if (open.has(callback)) callback(null, { headers: headOf(part), data: Buffer.from(part.data ?? "") });
        }
      })();
    },
  };
}

const headOf = ({ code, text, seq, pending }) => {
  const head = headers(code, text);
  if (seq) head.set("Nats-Sequence", String(seq));
  if (pending !== undefined) head.set("Nats-Num-Pending", String(pending));
  return head;
};

test("a direct get may take any time while its messages arrive, and leaves no subscription", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const nc = direct(() => [1, 2, 3].flatMap((seq) => [4000, { seq, pending: 3 - seq }]).concat({ code: 204, text: "EOB", pending: 0 })), seqs = [];
  const ended = new Store(nc, "ns").batch("s", {}, (m) => { seqs.push(m.seq); });
  for (let s = 0; s < 13; s++) {
    t.mock.timers.tick(1000);
    for (let n = 0; n < 5; n++) await new Promise((done) => setImmediate(done));
  }
  assert.deepEqual([await ended, seqs, nc.open.size], [0, [1, 2, 3], 0]);
});

test("a direct get without an answer, and one that is refused, fails and leaves no subscription", async (t) => {
  for (const [parts, error] of [[[], /not answered/], [[{ seq: 1, pending: 5 }], /not answered/], [[{ code: 413, text: "Too Many Results" }], /Too Many Results/]]) {
    t.mock.timers.enable({ apis: ["setTimeout"] });
    const nc = direct(() => parts), ended = assert.rejects(new Store(nc, "ns").batch("s", {}, () => {}), error);
    await new Promise((done) => setImmediate(done));
    t.mock.timers.tick(5000);
    await ended;
    assert.equal(nc.open.size, 0);
    t.mock.timers.reset();
  }
});

test("a search reads pages until it finds a message, there are no more, or it has read enough", async () => {
  for (const [last, most, wanted, found, pages] of [
    [2500, 10_000, 2400, true, [1, 1001, 2001]], [2500, 10_000, 0, false, [1, 1001, 2001]], [2500, 1500, 1501, false, [1, 1001]], [2500, 10_000, 7, true, [1]], [0, 10, 1, false, [1]],
  ]) {
    const nc = direct(({ seq, batch }) => {
      const parts = [];
      for (let n = seq; n < seq + batch && n <= last; n++) parts.push({ seq: n, pending: last - n });
      return last === 0 ? [{ code: 404, text: "Message Not Found" }] : [...parts, { code: 204, text: "EOB", pending: Math.max(0, last - (seq + batch - 1)) }];
    });
    assert.equal(await new Store(nc, "ns").finds("s", { seq: 1, next_by_subj: "x" }, most, (m) => m.seq === wanted), found);
    assert.deepEqual([nc.asked.map(({ seq }) => seq), nc.open.size], [pages, 0]);
  }
});
