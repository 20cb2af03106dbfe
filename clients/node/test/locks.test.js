import test from "node:test";
import assert from "node:assert/strict";
import { entrant } from "../lib/lock.js";
import { Locks } from "../lib/locks.js";
import { Invalid } from "../lib/names.js";
import { fromMs } from "../lib/values.js";

const instant = "2026-11-21T07:00:00Z", now = fromMs(Date.parse(instant)), at = (minute) => `2026-11-21T06:${String(minute).padStart(2, "0")}:00Z`;
const holder = (id, more) => ({ id, at: at(0), since: at(0), ...more });
const waits = (id, more) => ({ v: 1, id, state: "waiting", queue: "default", published: at(0), ...more });

// fake returns the locks of a node, for the job j, on a broker in memory. records has the ledger, and line the entries.
function fake({ records = {}, overlap = "queue", concurrency = 1, signal = new AbortController().signal } = {}) {
  const broker = { revision: 0, lock: undefined, reads: [], writes: [], records, line: [], published: [], ended: [] };
  const store = {
    namespace: "ns",
    async read(bucket, key) {
      broker.reads.push(key);
      if (bucket === "state") return { value: broker.lock, revision: broker.revision };
      if (records[key] === "unreadable") throw new Invalid("a newer program wrote it");
      return { value: records[key], revision: records[key] ? 4 : 0 };
    },
    async write(bucket, key, value, revision) {
      if (broker.silent) return { unknown: true };
      await broker.before?.();
      if (revision !== broker.revision) return { lost: true };
      broker.lock = value;
      broker.writes.push(value);
      return { won: ++broker.revision };
    },
    async publish(subject, body, head) {
      if (subject === "ns.wait.j") return { seq: broker.line.push(String(body)) };
      return { seq: broker.published.push(`${subject} ${head.get("Nats-Msg-Id")}`) };
    },
    async batch(stream, { seq }, each) {
      broker.line.forEach((text, i) => { if (i + 1 >= seq) each({ seq: i + 1, data: Buffer.from(text) }); });
    },
    nc: { request: async () => ({ json: () => ({ error: { err_code: 10037 } }) }) },
  };
  const entry = { job: { name: "j", queue: "default", overlap, concurrency, plan: {} }, payload: "{}", plans: [] };
  const node = { name: "n", lease: 3000, now: () => now, own: () => 0, clock: { error: () => 0 }, trusted: () => true, signal };
  const locks = new Locks({ store, node, registry: { entry: async () => entry }, horizon: 24 * 3_600_000, log: (line) => assert.fail(line) }, async (record) => broker.ended.push(record.id));
  const asks = (token, more) => locks.enter("j", entrant({ message: { slot: { job: "j", token }, ...more }, published: now }, { now, self: "n", entry }));
  // other is a write of another node, and stands puts slots into the line.
  const other = (lock) => { broker.lock = { v: 1, job: "j", holders: [], ...lock }; broker.revision++; };
  const stands = (...entries) => { for (const e of entries) broker.line.push(typeof e === "string" ? e : JSON.stringify({ v: 1, ...e })); };
  const holders = () => broker.lock.holders.map((h) => h.id);
  return { locks, broker, asks, other, stands, holders };
}

test("a lock that this node wrote last is not read before the next write", async () => {
  const { locks, broker, asks } = fake();
  for (const token of ["a", "b", "c"]) {
    assert.equal((await asks(token)).kind, "held");
    await locks.leave(`j:@${token}`);
  }
  assert.deepEqual([broker.reads, broker.writes.length, broker.lock.holders], [["lock.j"], 6, []]);
});

test("an answer by a remembered lock counts only after a won write", async () => {
  const { broker, asks, other, holders } = fake();
  await asks("a");
  other();
  assert.equal((await asks("b")).kind, "held"); // the lock was full, as far as this node knew
  other({ holders: [holder("j:@c")] });
  assert.equal((await asks("b")).kind, "waits"); // it held the place, as far as this node knew
  assert.deepEqual([holders(), broker.writes.length], [["j:@c"], 2]);
});

test("a lock whose write is not answered is not remembered", async () => {
  const { locks, broker, asks } = fake({ concurrency: 2 });
  await asks("a");
  broker.silent = true;
  await assert.rejects(asks("b"), /not written/);
  assert.equal(locks.known.size, 0);
});

test("requests to one lock are carried out one after the other", async () => {
  const { broker, asks, locks } = fake({ concurrency: 3 });
  await Promise.all([asks("a"), asks("b"), asks("c")]);
  assert.deepEqual([broker.writes.map((w) => w.holders.length), locks.working.size], [[1, 2, 3], 0]);
});

test("a slot that leaves gives its place to the first slot of the line with the same write, and publishes its message", async () => {
  const { locks, broker, asks, other, stands, holders } = fake({ records: { "j.t.gone": { state: "succeeded" }, "j.t.first": waits("j:@first", { payload: "e30=" }), "j.t.second": waits("j:@second") } });
  await asks("a");
  stands("no JSON", { id: "j:@gone", at: at(1) }, { id: "j:@second", at: at(3) }, { id: "j:@first", at: at(2) });
  other({ ...broker.lock, waiting: true });
  await locks.leave("j:@a");
  assert.deepEqual([holders(), broker.lock.holders[0].node, broker.lock.line, broker.lock.waiting, broker.writes.length], [["j:@first"], undefined, 3, true, 2]);
  assert.deepEqual(broker.published, ["ns.slot.default.j j:@first/r6"]);
});

test("a slot with two entries gets one place", async () => {
  const { locks, broker, asks, other, stands, holders } = fake({ concurrency: 2, records: { "j.t.b": waits("j:@b"), "j.t.c": waits("j:@c") } });
  await asks("a");
  stands({ id: "j:@b", at: at(1) }, { id: "j:@b", at: at(1) }, { id: "j:@c", at: at(2) });
  other({ ...broker.lock, waiting: true });
  await locks.leave("j:@a");
  assert.deepEqual(holders(), ["j:@b", "j:@c"]);
});

test("a record that cannot be read keeps no other slot of the line from its place, and stays in the line", async () => {
  const { locks, broker, asks, other, stands, holders } = fake({ records: { "j.t.b": "unreadable", "j.t.c": waits("j:@c") } });
  await asks("a");
  stands({ id: "j:@b", at: at(1) }, { id: "j:@c", at: at(2) });
  other({ ...broker.lock, waiting: true });
  await locks.leave("j:@a");
  assert.deepEqual([holders(), broker.lock.line], [["j:@c"], 1]);
});

test("a slot that was displaced is called without a place", async () => {
  const { locks, broker, stands, other, asks, holders } = fake({ overlap: "latest", records: { "j.20261121T060100Z": waits(`j:${at(1)}`), "j.20261121T060200Z": waits(`j:${at(2)}`) } });
  await asks("a");
  stands({ id: `j:${at(1)}`, at: at(1), on_time: true }, { id: `j:${at(2)}`, at: at(2), on_time: true });
  other({ ...broker.lock, waiting: true, newest: at(2) });
  await locks.leave("j:@a");
  assert.deepEqual([holders(), broker.published.sort()], [[`j:${at(2)}`], [`ns.slot.default.j j:${at(1)}/r6`, `ns.slot.default.j j:${at(2)}/r6`]]);
});

test("a slot that stands in the line looks at the lock again, and gets a place that became free meanwhile", async () => {
  const { locks, broker, asks, other, holders } = fake({ records: { "j.t.b": waits("j:@b") } });
  other({ holders: [holder("j:@a")] });
  assert.equal((await asks("b")).kind, "waits");
  other(); // the holder left, and its worker found the line empty
  await locks.stand("j", { id: "j:@b", at: at(1) }, 4);
  assert.deepEqual([holders(), broker.published], [["j:@b"], ["ns.slot.default.j j:@b/r6"]]);
});

test("a line that was found empty is looked at once more after the write that says so", async () => {
  const { locks, broker, asks, other, stands, holders } = fake({ records: { "j.t.b": waits("j:@b") } });
  await asks("a");
  other({ ...broker.lock, waiting: true });
  broker.before = () => { if (broker.line.length === 0) stands({ id: "j:@b", at: at(1) }); };
  await locks.leave("j:@a");
  assert.deepEqual(holders(), ["j:@b"]);
});

test("the place of another node is left to it, unless the record is final", async () => {
  const { locks, broker, other, holders } = fake();
  other({ holders: [holder("j:@a", { node: "m" })] });
  for (const [found, state, left] of [[false, "succeeded", false], [true, "retrying", false], [true, "succeeded", true]]) {
    broker.records["j.t.a"] = { state };
    await locks.leave("j:@a", found);
    assert.deepEqual(holders(), left ? [] : ["j:@a"], `${found} ${state}`);
  }
});

test("a slot is not skipped because of a holder that has ended", async () => {
  const { locks, broker, other, holders } = fake({ overlap: "skip", records: { "j.t.a": { state: "running" } } });
  const slot = { id: `j:${instant}`, at: instant, on_time: true, since: instant, node: "n" }, ask = () => locks.enter("j", { slot, overlap: "skip", places: 1, fresh: true });
  other({ holders: [holder("j:@a", { node: "m" })] });
  assert.equal((await ask()).kind, "skipped");
  broker.records["j.t.a"] = { state: "succeeded" };
  assert.equal((await ask()).kind, "held");
  assert.deepEqual(holders(), [slot.id]);
});

test("the holder of a place is asked to end until it has left, and not if it is split", async () => {
  const { locks, broker, other } = fake({ records: { "j.t.a": { id: "j:@a", state: "running" } } });
  other({ holders: [holder("j:@a")] });
  const over = locks.displace("j", "j:@a", "j:@b", at(9), new AbortController().signal);
  while (broker.ended.length < 2) await new Promise((done) => setImmediate(done));
  broker.records["j.t.a"].shards = 2;
  other();
  assert.deepEqual([await over, broker.ended.every((id) => id === "j:@a")], [true, true]);
  other({ holders: [holder("j:@a")], newest: at(10) });
  assert.equal(await locks.displace("j", "j:@a", "j:@b", at(9), new AbortController().signal), true); // a newer slot goes on
  other({ holders: [holder("j:@a")] });
  const before = broker.ended.length, stop = new AbortController();
  const stopped = locks.displace("j", "j:@a", "j:@b", at(9), stop.signal);
  setTimeout(() => stop.abort(), 0);
  assert.deepEqual([await stopped, broker.ended.length], [false, before]);
});

test("a slot whose newer one has a place too, or has ended, goes on under replace", async () => {
  const newer = `j:${at(5)}`, slot = { id: `j:${at(1)}`, at: at(1), on_time: true, since: instant, node: "n" }, records = {};
  const { locks, other } = fake({ overlap: "replace", records }), ask = () => locks.enter("j", { slot, overlap: "replace", places: 1, fresh: false, author: "n" });
  other({ holders: [holder(slot.id, { on_time: true, node: "n" })], newest: at(5) });
  for (const [state, kind] of [[undefined, "cancelled"], ["waiting", "cancelled"], ["running", "held"], ["expired", "held"]]) {
    records["j.20261121T060500Z"] = state && { state };
    assert.equal((await ask()).kind, kind, state ?? newer);
  }
});

test("an entry whose slot has to end counts until its message is published", async () => {
  const { locks, broker, stands, other, asks } = fake({ overlap: "latest", records: { "j.20261121T060100Z": waits(`j:${at(1)}`) } });
  await asks("a");
  stands({ id: `j:${at(1)}`, at: at(1), on_time: true });
  other({ ...broker.lock, waiting: true, newest: at(2) });
  locks.publishAll = async () => { throw new Error("not acknowledged"); };
  await assert.rejects(locks.leave("j:@a"), /not acknowledged/);
  assert.deepEqual([broker.lock.waiting, broker.lock.line], [true, undefined]);
});
