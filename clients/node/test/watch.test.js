import test from "node:test";
import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { Registry } from "../lib/registry.js";
import { Seen, watch } from "../lib/watch.js";

// Bucket is a stream in memory. drop removes a key without a marker, as a purge does.
class Bucket {
  messages = new Map(); // by key: {seq, text}
  last = 0;
  created = "2026-11-01T00:00:00Z";
  followers = new Set();

  put(key, text, { silent = false } = {}) {
    this.messages.set(key, { seq: ++this.last, text });
    if (!silent) for (const f of this.followers) f.deliver(key);
  }

  drop(key) { this.messages.delete(key); }

  open = async () => ({
    info: async () => ({ created: this.created, state: { messages: this.messages.size, last_seq: this.last } }),
    has: async (subject) => this.messages.has(subject.slice("$KV.b.".length)),
    after: async (seq) => [...this.messages.values()].some((m) => m.seq > seq),
    follow: async () => {
      const queue = [], follower = { deliver: (key) => { queue.push(key); wake(); } };
      let wake = () => {}, stopped = false;
      for (const [key] of [...this.messages].sort((a, b) => a[1].seq - b[1].seq)) queue.push(key);
      this.followers.add(follower);
      return {
        stop: () => { stopped = true; this.followers.delete(follower); wake(); },
        [Symbol.asyncIterator]: async function* () {
          while (!stopped) {
            if (queue.length === 0) await new Promise((done) => { wake = done; });
            else {
              const key = queue.shift(), { seq, text } = this.messages.get(key);
              yield { subject: `$KV.b.${key}`, seq, data: Buffer.from(text), info: { pending: queue.length }, timestampNanos: BigInt(seq) };
            }
          }
        }.bind(this),
      };
    },
  });
}

// follows watches a bucket, one watch after the other, and says what it saw. The timers are mocked: elapse(ms) moves them.
function follows(t, bucket) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const said = [], end = new AbortController(), seen = new Seen();
  const running = (async () => {
    while (!end.signal.aborted) {
      await watch({}, "b", end.signal, {
        seen, stream: bucket.open, changed: ({ key, text, revision }) => said.push([key, text, revision]), gone: (key) => said.push([key, "gone"]),
        ready: (revision) => said.push(["ready", revision]), again: () => said.push(["again"]),
      });
      said.push(["ended"]);
    }
  })();
  const settle = async () => { for (let n = 0; n < 50; n++) await new Promise((done) => setImmediate(done)); };
  return {
    settle, listeners: () => getEventListeners(end.signal, "abort").length, end: () => { end.abort(); return running; },
    take: async () => { await settle(); return said.splice(0); },
    elapse: async (ms) => { for (let n = 0; n < ms; n += 500) { t.mock.timers.tick(500); await settle(); } },
  };
}

const once = (list) => list.filter(([what], i) => what !== "ready" || list.findIndex(([w]) => w === "ready") === i);

test("a watch reports what is stored, and then each change", async (t) => {
  const bucket = new Bucket(), { take, end, elapse } = follows(t, bucket);
  bucket.put("a", "1");
  bucket.put("b", "1");
  assert.deepEqual(once(await take()), [["a", "1", 1], ["b", "1", 2], ["ready", 2]]);
  bucket.put("a", "2");
  assert.deepEqual(await take(), [["a", "2", 3]]);
  await elapse(60_000);
  assert.deepEqual(once(await take()), [["ready", 3]]); // no other watch was needed
  await end();
});

test("a watch notices that a key was removed without a marker, and reports nothing else again", async (t) => {
  const bucket = new Bucket(), { take, end, elapse } = follows(t, bucket);
  for (const key of ["a", "b"]) bucket.put(key, "1");
  await take();
  bucket.drop("a");
  await elapse(50_000);
  assert.deepEqual(once(await take()), [["ended"], ["a", "gone"], ["ready", 2]]);
  await end();
});

test("a watch notices a change that was not delivered", async (t) => {
  const bucket = new Bucket(), { take, end, elapse } = follows(t, bucket);
  for (const key of ["a", "b"]) bucket.put(key, "1");
  await take();
  bucket.put("a", "2", { silent: true });
  await elapse(50_000);
  assert.deepEqual(once(await take()), [["ended"], ["a", "2", 3], ["ready", 3]]);
  await end();
});

test("a watch reports all again if its stream was created again, or restored", async (t) => {
  for (const restore of [(b) => { b.created = "2026-11-02T00:00:00Z"; b.last = 1; }, (b) => { b.last = 1; }]) {
    const bucket = new Bucket(), { take, end, elapse } = follows(t, bucket);
    for (const key of ["a", "b"]) bucket.put(key, "1");
    await take();
    bucket.messages.clear();
    bucket.messages.set("a", { seq: 1, text: "other" });
    restore(bucket);
    await elapse(50_000);
    assert.deepEqual(once(await take()), [["ended"], ["again"], ["a", "other", 1], ["ready", 1]]);
    await end();
    t.mock.timers.reset();
  }
});

test("a watch learns the revision of a marker that was compacted", async (t) => {
  const bucket = new Bucket(), { take, end } = follows(t, bucket);
  bucket.put("a", "1");
  bucket.last = 5;
  assert.deepEqual((await take()).at(-1), ["ready", 5]);
  await end();
});

test("registry: a job that was removed without a marker is no job any more", async () => {
  const registry = new Registry({ nc: {}, namespace: "ns", read: async () => ({ revision: 0 }) }, () => {}), end = new AbortController(), heard = [];
  registry.listeners.add((ended) => ended && heard.push([ended.job.name, ended.ended]));
  let events;
  registry.watch = (nc, bucket, signal, given) => {
    events = given;
    events.changed({ key: "j", text: JSON.stringify({ v: 1, job: { name: "j", plan: { schedule: "@hourly" } } }), revision: 7, time: 7n, pending: 0 });
    events.ready(7);
    return new Promise((done) => { signal.addEventListener("abort", done); });
  };
  await registry.run(end.signal);
  assert.equal((await registry.entry("j", 7)).revision, 7);
  events.gone("j");
  assert.equal(await registry.entry("j", 7), undefined);
  assert.deepEqual([heard, registry.known], [[["j", undefined]], { revision: 7, time: 7n }]);
  events.again();
  let listed = false;
  void registry.listed.then(() => { listed = true; });
  await Promise.resolve();
  assert.deepEqual([registry.revision, listed], [0, false]);
  events.ready(1);
  await registry.listed;
  end.abort();
});

test("a watch that has ended leaves no listener on the signal", async (t) => {
  const bucket = new Bucket(), { settle, listeners, end, elapse } = follows(t, bucket);
  for (const key of ["a", "b", "c"]) bucket.put(key, "1");
  await settle();
  const one = listeners();
  for (const key of ["a", "b"]) {
    bucket.drop(key);
    await elapse(50_000);
  }
  assert.deepEqual([one, listeners()], [1, 1]);
  await end();
});
