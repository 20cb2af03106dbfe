import test from "node:test";
import assert from "node:assert/strict";
import { Locks } from "../lib/locks.js";
import { fromMs } from "../lib/values.js";

const instant = "2026-11-21T07:00:00Z", now = fromMs(Date.parse(instant));
const view = (overlap, more) => ({ entry: { job: { name: "j", overlap } }, now, horizon: 3_600_000, ...more });
const run = (token, more) => ({ message: { slot: { job: "j", token }, offer: 0, ...more }, published: now });
const holder = (id) => ({ id, at: instant, since: instant });

// fake returns the locks of a node, on a broker in memory: stored has the lock, and reads and writes what was asked of it.
function fake({ records = {} } = {}) {
  const broker = { revision: 0, stored: undefined, reads: [], writes: 0, woken: [] };
  const store = {
    namespace: "ns", nc: { publish: (_, id) => broker.woken.push(id) },
    async read(bucket, key) {
      broker.reads.push(key);
      return bucket === "ledger" ? { value: records[key], revision: records[key] ? 1 : 0 } : { value: broker.stored, revision: broker.revision };
    },
    async write(bucket, key, value, revision) {
      broker.writes++;
      if (broker.silent) return { unknown: true };
      if (revision !== broker.revision) return { lost: true };
      broker.stored = value;
      return { won: ++broker.revision };
    },
  };
  const node = { name: "n", lease: 3000, now: () => now, trusted: () => true, signal: new AbortController().signal };
  // other is a write of another node.
  const other = (stored) => { broker.stored = stored; broker.revision++; };
  return { locks: new Locks(store, node, async () => {}), broker, other };
}

test("a lock that this node wrote last is not read before the next write", async () => {
  const { locks, broker } = fake();
  for (const token of ["a", "b", "c"]) {
    const place = await locks.enter(run(token), view("queue"));
    assert.equal(place.kind, "held");
    await locks.leave(`j:@${token}`, place.since, view("queue").entry);
  }
  assert.deepEqual([broker.reads, broker.writes, broker.stored.holders], [["lock.j"], 6, []]);
});

test("a lock that another node has changed is read before a slot enters or leaves it", async () => {
  const { locks, broker, other } = fake();
  const { since } = await locks.enter(run("a"), view("queue"));
  other({ ...broker.stored, waiting: [holder("j:@b")] });
  await locks.leave("j:@a", since, view("queue").entry);
  assert.deepEqual([broker.stored.holders.map((s) => s.id), broker.woken], [["j:@b"], ["j:@b"]]);
  other({ ...broker.stored, holders: [holder("j:@c")] });
  assert.equal((await locks.enter(run("d"), view("queue"))).kind, "waits");
  assert.deepEqual(broker.stored.holders.map((s) => s.id), ["j:@c"]);
});

test("a slot is refused only by a lock that was just read", async () => {
  const { locks, broker, other } = fake();
  await locks.enter(run("a"), view("queue"));
  other({ ...broker.stored, holders: [] });
  assert.equal((await locks.enter(run("b"), view("queue"))).kind, "held");
  other({ ...broker.stored, holders: [] });
  assert.equal((await locks.enter(run("b"), view("queue"))).kind, "held"); // the place that it remembers is gone
  assert.deepEqual(broker.stored.holders.map((s) => s.id), ["j:@b"]);
});

test("a slot leaves a lock that it has entered again at another time only by that stay", async () => {
  const { locks, broker, other } = fake();
  const { since } = await locks.enter(run("a"), view("queue"));
  other({ ...broker.stored, holders: [{ ...holder("j:@a"), since: "2026-11-21T08:00:00Z" }] });
  await locks.leave("j:@a", since, view("queue").entry);
  assert.equal(broker.stored.holders.length, 1);
});

test("a lock whose write is not answered is not remembered", async () => {
  const { locks, broker } = fake();
  await locks.enter(run("a"), view("queue"));
  broker.silent = true;
  assert.equal(await locks.enter(run("b"), view("queue", { entry: { job: { name: "j", overlap: "queue", concurrency: 2 } } })), undefined);
  assert.equal(locks.known.size, 0);
});

test("a short slot under skip stays in its lock, and the next slot of this node takes its place with one write", async () => {
  const { locks, broker } = fake(), { entry } = view("skip");
  const { since } = await locks.enter(run("a"), view("skip"));
  await locks.leave("j:@a", since, entry);
  assert.equal(broker.stored.holders[0].id, "j:@a");
  assert.equal((await locks.enter(run("b"), view("skip"))).kind, "held");
  assert.deepEqual([broker.reads, broker.writes, broker.stored.holders.map((s) => s.id)], [["lock.j"], 2, ["j:@b"]]);
});

test("a slot that stayed in its lock is not known to have ended once the lock has changed", async () => {
  const { locks, broker, other } = fake(), { entry } = view("skip");
  const { since } = await locks.enter(run("a"), view("skip"));
  await locks.leave("j:@a", since, entry);
  other({ ...broker.stored, holders: [{ ...broker.stored.holders[0], since: "2026-11-21T07:00:01Z" }] }); // it was reopened
  assert.equal((await locks.enter(run("b"), view("skip"))).kind, "waits");
  assert.equal(broker.stored.holders[0].id, "j:@a");
});

test("a slot that stayed in its lock and is reopened has a new stay", async () => {
  const { locks, broker } = fake(), { entry } = view("skip");
  const { since } = await locks.enter(run("a"), view("skip"));
  await locks.leave("j:@a", since, entry);
  const later = view("skip", { now: now + 1_000_000n, record: { state: "retrying" } });
  const place = await locks.enter(run("a", { offer: 1000 }), later);
  assert.deepEqual([place.kind, place.since !== since, broker.stored.holders.length], ["held", true, 1]);
  await locks.leave("j:@a", since, entry); // by the worker of the first stay
  assert.equal((await locks.enter(run("b"), view("skip"))).kind, "waits");
});

test("a slot that ran for longer, or has another behind it, or is one of several at once, leaves its lock by a write", async () => {
  for (const [name, overlap, job, after, waiting] of [["long", "skip", {}, 1000n, []], ["queue", "queue", {}, 0n, []], ["several", "skip", { concurrency: 2 }, 0n, []], ["behind", "skip", {}, 0n, [holder("j:@b")]]]) {
    const { locks, broker, other } = fake(), v = view(overlap);
    Object.assign(v.entry.job, job);
    if (waiting.length) other({ v: 1, job: "j", holders: [], waiting: [{ ...waiting[0], at: "2026-11-21T08:00:00Z" }] });
    const { since } = await locks.enter(run("a"), v);
    locks.node.now = () => now + after * 1_000_000n;
    await locks.leave("j:@a", since, v.entry);
    assert.deepEqual(broker.stored.holders.map((s) => s.id), waiting.map((s) => s.id), name);
  }
});
