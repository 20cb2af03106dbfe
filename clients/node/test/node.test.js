import test from "node:test";
import assert from "node:assert/strict";
import { uptime } from "node:os";
import { steady } from "../lib/clock.js";
import { Node } from "../lib/node.js";

// never is the answer of a broker that does not answer.
const never = () => new Promise(() => {});

test("the second heartbeat does not wait for the first reading of the clock", async (t) => {
  const beats = [];
  let second;
  const beaten = new Promise((done) => { second = done; });
  const store = {
    namespace: "ns", nc: { options: {}, info: {}, request: never },
    async write() {
      if (beats.push(new Date().toISOString()) === 2) second();
      return { won: beats.length };
    },
    // The clock is read only after the second heartbeat.
    async read() {
      await beaten;
      return { revision: beats.length, time: beats.at(-1) };
    },
  };
  const node = new Node(store, 3000, "n", 0, () => ({}));
  t.after(() => node.end("stopped"));
  await node.start();
  assert.ok(beats.length >= 2, `${beats.length} heartbeats`);
  assert.ok(node.trusted(), node.signal.reason?.message);
  assert.ok(node.clock.best, "it started without an estimate of the clock");
});

// stored is a store with the record of the node n: written has all of its values.
function stored(...written) {
  return {
    namespace: "ns", nc: { options: {}, info: {}, request: never }, written,
    async write(bucket, key, value, revision) { return revision === written.length ? { won: written.push(value) } : { lost: true }; },
    async read() { return { value: written.at(-1), revision: written.length, time: new Date().toISOString() }; },
  };
}

test("a node that stops says so although its last heartbeat was stored without an answer", async () => {
  for (const [state, last] of [["alive", "stopped"], ["fenced", "fenced"]]) {
    const store = stored({ state: "alive" }, { state }), node = new Node(store, 3000, "n", 0, () => ({}));
    Object.assign(node, { revision: 1, trustedUntil: Infinity });
    await node.stop(false);
    assert.equal(store.written.at(-1).state, last);
  }
});

test("a process that slept sends no copy of its heartbeat", async () => {
  const sends = [], store = stored({ state: "alive" }), node = new Node(store, 3000, "n", 0, () => ({}));
  Object.assign(node, { revision: 1, trustedUntil: Infinity });
  store.write = async (bucket, key, value, revision, { trusted }) => {
    sends.push(trusted?.());
    node.trustedUntil = -Infinity; // the process sleeps until its trust has lapsed
    sends.push(trusted?.());
    return { unknown: true };
  };
  await node.beat();
  assert.deepEqual([sends, node.signal.aborted], [[true, false], true]);
});

test("a node with a slow broker waits for a better estimate of the clock", () => {
  const node = new Node(stored(), 3000, "n", 0, () => ({}));
  assert.ok(!node.estimated());
  node.clock.observe(node.own() - 200, node.own(), node.own());
  Object.assign(node, { answers: 1, first: Infinity });
  assert.ok(!node.estimated());
  assert.ok(Object.assign(node, { answers: 4 }).estimated());
  Object.assign(node, { answers: 1 }).clock.observe(node.own() - 20, node.own(), node.own());
  assert.ok(node.estimated());
});

test("a name that no node can have is not challenged", async () => {
  await assert.rejects(new Node(stored(), 3000, "n", 0, () => ({})).dead("a b"), /node "a b"/);
});

test("a clock that is set makes no slot due, and shows in the distance to the broker's", (t) => {
  const node = new Node(stored(), 3000, "n", 0, () => ({}));
  node.clock.observe(node.own() - 2, node.own(), node.own());
  const before = node.now(), wall = Date.now;
  t.after(() => { Date.now = wall; });
  for (const [set, implausible] of [[600_000, false], [-600_000, false], [7_200_000, true]]) {
    Date.now = () => wall() + set;
    for (const now of [node.now(), node.certain()]) assert.ok(Math.abs(Number(now - before)) < 60e9, `${set}: ${now - before} ns later`);
    assert.ok(Math.abs(node.offset + set) < 60_000, `${set}: ${node.offset}`);
    assert.equal(node.implausible, implausible);
  }
});

test("a clock that cannot be set does not run back, and counts what passes", () => {
  const first = steady();
  assert.ok(Math.abs(first - uptime() * 1000) < 3000);
  assert.ok(steady() >= first);
});

test("a node forgets others after the bucket has forgotten them", (t) => {
  const node = new Node(stored(), 3000, "n", 0, () => ({})), now = performance.now.bind(performance);
  for (let i = 0; i < 1001; i++) node.notice({ key: `n${i}`, text: "{}", revision: i });
  t.mock.method(performance, "now", () => now() + 2 * 3_600_000);
  node.notice({ key: "new", text: "{}", revision: 2000 });
  assert.deepEqual([...node.seen.keys()], ["new"]);
});

test("a node follows the others by a new watch if one ends", async (t) => {
  const node = new Node(stored(), 3000, "n", 0, () => ({}));
  let watches = 0;
  const again = new Promise((done) => { node.watch = async () => { if (++watches === 2) done(); }; });
  t.after(() => node.end("stopped"));
  void node.meet();
  await again;
});

test("a heartbeat that is answered when the node has ended leaves no timer behind", async () => {
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length, before = timers();
  const store = stored(), write = store.write;
  const node = new Node(store, 3_600_000, "n", 0, () => ({}));
  store.write = (...args) => { node.end("stopped"); return write(...args); };
  await node.beat();
  assert.equal(timers(), before);
});

test("a node goes on, and logs an error once, while it cannot follow the others", async (t) => {
  const said = [], node = new Node(stored(), 3000, "n", 0, () => ({}), (line) => said.push(line));
  let watches = 0;
  const again = new Promise((done) => { node.watch = async () => { if (++watches === 3) done(); throw new Error("timeout"); }; });
  t.after(() => node.end("stopped"));
  void node.meet();
  await again;
  assert.deepEqual([said, node.signal.aborted], [["records of nodes: timeout"], false]);
});

test("a node lists its handlers once, outside its record, and marks a list that is cut", async (t) => {
  const written = [];
  const store = {
    namespace: "ns", nc: { options: {}, info: { max_payload: 1100 }, request: never },
    async write(bucket, key, value) { return { won: written.push([bucket, key, value]) }; },
    async read() { return { revision: written.length, time: new Date().toISOString() }; },
  };
  const node = new Node(store, 100, "n", 0, () => ({}), undefined, ["a".repeat(50), "b".repeat(50), "c"]);
  t.after(() => node.end("stopped"));
  await node.start();
  while (written.filter(([bucket]) => bucket === "nodes").length < 3) await new Promise((done) => setTimeout(done, 5));
  const lists = written.filter(([bucket]) => bucket === "state");
  assert.deepEqual(lists.map(([, key, value]) => [key, value]), [[`handlers.${node.name}`, { v: 1, node: node.name, handlers: ["a".repeat(50)], more: 2 }]]);
  assert.ok(written.every(([bucket, , value]) => bucket !== "nodes" || !("handlers" in value)));
});
