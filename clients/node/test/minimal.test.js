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

test("minimal: a member of a newer program is written back with all of its digits", async () => {
  const value = '{"v":1,"id":"j:@k","state":"retrying","attempt":1,"newer":[12345678901234567890,-0.12345678901234567890,1e400,2.5,{"text":"12345678901234567890 \\"9007199254740993","n":9007199254740993}]}';
  const sent = [];
  const nc = {
    async request(subject, body) {
      if (subject.startsWith("$KV.")) return { json: () => ({ seq: sent.push(body) }) };
      return { json: () => ({ message: { seq: 7, data: Buffer.from(value).toString("base64") } }) };
    },
  };
  const store = new Store(nc, "ns"), record = (await store.read("ledger", "j.t.k")).value;
  assert.deepEqual([record.attempt, record.newer[3]], [1, 2.5]);
  await store.write("ledger", "j.t.k", record, 7, () => false);
  assert.equal(sent[0].replace(/,"nonce":"[^"]*"/, ""), value);
});

test("minimal: a value that is not JSON is not read, however long its numbers are", async () => {
  for (const number of ["01234567890123456789", "1234567890123456789.", "12345678-12345678", "1234567890123456789 1", "x1234567890123456789"]) {
    const nc = { request: async () => ({ json: () => ({ message: { seq: 7, data: Buffer.from(`{"v":1,"id":"j:@k","state":"retrying","newer":${number}}`).toString("base64") } }) }) };
    await assert.rejects(new Store(nc, "ns").read("ledger", "j.t.k"), SyntaxError, number);
  }
});
