import test from "node:test";
import assert from "node:assert/strict";
import { Node, Store } from "../minimal.js";

// fake returns a node of the minimal worker that trusts itself, with a ledger that has this record.
function fake(record, handlers = { j() {} }) {
  const store = { namespace: "ns", written: [], async read() { return { value: record, revision: 3 }; }, async write(bucket, key, value) { return this.written.push(value); } };
  return Object.assign(new Node(store, { name: "n", handlers, inflight: new Map(), lease: 3000, horizon: 86_400_000, clockOffset: 0, log() {} }), { revision: 1, trustedUntil: Infinity, offset: 0, error: 0 });
}

test("minimal: a member that is null counts as absent", async () => {
  const value = JSON.stringify({ v: 1, id: "j:@k", state: "retrying", attempt: null, max_attempts: null, published: null, due: null, retry_at: null, finished: null, payload: null, attempts: null });
  const nc = { request: async () => ({ json: () => ({ message: { seq: 7, data: Buffer.from(value).toString("base64") } }) }) };
  assert.equal((await new Store(nc, "ns").read("ledger", "j.t.k")).revision, 7);
});

test("minimal: a shard with an outcome is left to a worker that can conclude the whole slot", async () => {
  const id = "j:@k#1of2", answer = await fake({ id, state: "succeeded" }).decide({ info: { deliveryCount: 1 } }, "q", { id, job: "j", shard: "#1of2", key: "j.t.k.1of2" }, {});
  assert.ok(answer.nak > 0);
});

test("minimal: a node without trust answers no message", async () => {
  const answers = [], node = fake();
  node.trustedUntil = -Infinity;
  const message = (id) => ({ subject: "ns.slot.q.other", headers: new Map([["Cronce-Slot", id]]), timestampNanos: 0n, term: () => answers.push("term"), nak: () => answers.push("nak") });
  for (const id of ["j:@k", "no slot"]) await node.take(message(id), "q");
  assert.deepEqual(answers, []);
});

test("minimal: an attempt ends once, whatever its handler throws", async () => {
  for (const thrown of [undefined, null, { message: 7 }]) {
    const node = fake(undefined, { j() { throw thrown; } }), claim = { v: 1, id: "j:@k", attempt: 1, max_attempts: 1, attempts: [] };
    await node.attempt({ data: Buffer.alloc(0) }, { id: "j:@k", job: "j", key: "j.t.k" }, { controller: new AbortController() }, claim, 3, {});
    assert.equal(node.store.written.at(-1).state, "failed");
  }
});

test("minimal: a node that stops knows the revision of its last heartbeat", async () => {
  const node = fake();
  node.store.write = async () => { node.end("stopped"); return 9; };
  await node.beat();
  assert.equal(node.revision, 9);
});
