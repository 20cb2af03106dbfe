import test from "node:test";
import assert from "node:assert/strict";
import { parseMessage } from "../lib/message.js";
import { pause } from "../lib/store.js";
import { parseInstant } from "../lib/values.js";
import { Worker } from "../lib/worker.js";

test("a slot that ends whatever the definition says ends although the definition cannot be read", async () => {
  const now = parseInstant("2026-11-21T07:00:00Z"), old = "j:2026-11-19T07:00:00Z", young = "j:2026-11-21T07:00:00Z";
  const node = { name: "n", now: () => now, own: () => 0, clock: { error: () => 0 }, implausible: false, trusted: () => true, signal: new AbortController().signal };
  const registry = { entries: new Map(), async entry() { throw new Error("its definition cannot be read"); } };
  for (const [headers, record, state] of [
    [{ "Cronce-Slot": young, "Cronce-Missed": "1" }, undefined, "missed"],
    [{ "Cronce-Slot": "j:m.2026-11-20T07:00:00Z" }, undefined, "missed"],
    [{ "Cronce-Slot": "j:@k", "Cronce-Refused": "too large" }, undefined, "failed"],
    [{ "Cronce-Slot": old }, undefined, "expired"],
    [{ "Cronce-Slot": old }, { v: 1, id: old, state: "retrying", attempt: 1, retry_at: "2026-11-21T08:00:00Z" }, "failed"],
    [{ "Cronce-Slot": young }, undefined, undefined],
    [{ "Cronce-Slot": young }, { v: 1, id: young, state: "retrying", attempt: 1, retry_at: "2026-11-21T06:59:00Z" }, undefined],
  ]) {
    const written = [];
    const store = {
      namespace: "ns", nc: { publish() {} },
      async read() { return { value: record, revision: record ? 3 : 0 }; },
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
  assert.deepEqual(answers, ["nak j:@2"]);
  end();
  await Promise.all(tasks);
  assert.deepEqual(answers, ["nak j:@2", "ack j:@1"]);
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
