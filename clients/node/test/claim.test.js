import test from "node:test";
import assert from "node:assert/strict";
import { complete, decide, fit, release } from "../lib/claim.js";
import { parseEntry } from "../lib/definition.js";
import { parseMessage } from "../lib/message.js";
import { parseInstant } from "../lib/values.js";

const now = parseInstant("2026-11-21T07:00:01Z"), horizon = 24 * 3_600_000;
const entry = parseEntry(JSON.stringify({ v: 1, job: { name: "j", overlap: "allow", plan: { schedule: "0 * * * *" } } }), 3, parseInstant("2026-11-01T00:00:00Z"));
const delivery = (id, more) => ({ message: parseMessage((name) => ({ "Cronce-Slot": id, ...more })[name] ?? ""), queue: "default", published: parseInstant("2026-11-21T07:00:00Z"), count: 1, payload: Buffer.alloc(0) });
const view = { now, self: "me", horizon, entry, handles: true, revision: 7 };

test("a shard with an outcome is left to a worker that can conclude the whole slot", () => {
  const id = "j:2026-11-21T07:00:00Z#1of2";
  assert.equal(decide(delivery(id), { ...view, record: { v: 1, id, state: "succeeded", attempt: 1 } }).do, "later");
  const whole = "j:2026-11-21T07:00:00Z";
  assert.equal(decide(delivery(whole), { ...view, record: { v: 1, id: whole, state: "succeeded", shards: 2 } }).do, "ack");
});

test("a triggered run is as old as its message, whatever instant its token names", () => {
  for (const token of ["copy:2020-01-01T00:00:00Z", "copy:2020-is-no-instant"]) {
    const id = `j:@${token}`, { record } = decide(delivery(id), view);
    assert.equal(complete(record, 8, now, horizon, { error: "no", backoff: 1000 }).state, "retrying", token);
  }
});

test("a message with a payload that no record can hold ends its slot", () => {
  for (const id of ["j:@k", "j:2026-11-21T07:00:00Z"]) {
    for (const [size, state] of [[262_144, "running"], [262_145, "cancelled"]]) {
      const { record } = decide({ ...delivery(id), payload: Buffer.alloc(size) }, view);
      assert.equal(record.state, state, `${id}: ${size}`);
      if (state === "cancelled") assert.equal(record.payload, undefined);
    }
  }
});

test("a slot with a million attempts is not claimed again", () => {
  const id = "j:2026-11-21T07:00:00Z", record = { v: 1, id, attempt: 1_000_000, max_attempts: 1_000_000, node: "other", published: "2026-11-21T07:00:00Z" };
  for (const state of [{ state: "retrying", error: "no" }, { state: "running", max_attempts: 1_000_001 }]) {
    const step = decide(delivery(id), { ...view, record: { ...record, ...state }, ownerDead: true });
    assert.equal(step.record.state, "failed", state.state);
  }
});

test("a claim of this node is released although its record names no attempts", () => {
  assert.equal(release({ v: 1, id: "j:@k", state: "running", attempt: 0, node: "me" }, now).attempt, 0);
});

test("the name of a publisher is cut to what a record may have", () => {
  const { record } = decide(delivery("j:@k", { "Cronce-Node": "é".repeat(200) }), view);
  assert.equal(record.publisher, "é".repeat(128));
});

test("a number in a header has at most 64 bits", () => {
  const revision = (text) => delivery("j:@k", { "Cronce-Job-Revision": text }).message.revision;
  assert.equal(revision(`${"0".repeat(30)}7`), 7);
  assert.throws(() => revision("18446744073709551616"), /not a number/);
});

test("a plan with one shard is not split", () => {
  const one = parseEntry(JSON.stringify({ v: 1, job: { name: "j", overlap: "allow", plan: { schedule: "0 * * * *", shards: 1 } } }), 3, parseInstant("2026-11-01T00:00:00Z"));
  for (const revision of ["2", "3"]) {
    assert.equal(decide(delivery("j:2026-11-21T07:00:00Z", { "Cronce-Job-Revision": revision }), { ...view, entry: one }).do, "start");
  }
});

test("a record that is too large for the server is cut: old texts first, the newest last", () => {
  const size = (r) => Buffer.byteLength(JSON.stringify(r)), text = "\u0001".repeat(2000);
  const attempt = (n) => ({ attempt: n, node: "n", started: "2026-11-21T07:00:00Z", error: text, output: text });
  const record = { v: 1, id: "j:@k", state: "succeeded", attempts: [1, 2, 3].map(attempt), output: text, result: "r".repeat(3000), error: text };
  const whole = size(record), cut = (limit) => {
    const r = fit(record, limit);
    assert.ok(size(r) <= limit, `${size(r)} > ${limit}`);
    return [r.attempts[0].error, r.attempts[0].output, r.attempts[1].output, r.output, r.result, r.error].map((t, i) => t === (i === 4 ? record.result : text));
  };
  assert.equal(fit(record, whole), record);
  assert.deepEqual(cut(whole - 1), [false, true, true, true, true, true]);
  assert.deepEqual(cut(whole - 24_000), [false, false, true, true, true, true]);
  assert.deepEqual(cut(whole - 40_000), [false, false, false, true, true, true]);
  assert.deepEqual(cut(43_000), [false, false, false, false, true, true]);
  assert.deepEqual(fit(record, 30_000).result_dropped, 3002);
  assert.deepEqual(record.attempts.map((a) => a.output), [text, text, text], "the record itself was changed");
});

test("a claim bounds the errors and the outputs of earlier attempts, the older the more", () => {
  const quoted = (text) => Buffer.byteLength(JSON.stringify(text)) - 2;
  const attempt = (n, text) => ({ attempt: n, node: "n", started: "2026-11-21T07:00:00Z", finished: "2026-11-21T07:00:00Z", error: "e".repeat(2000), output: text.repeat(65_536) });
  for (const text of ["x", "\u0001", "\n"]) {
    const record = { v: 1, id: "j:@k", state: "retrying", attempt: 30, max_attempts: 99, published: "2026-11-21T07:00:00Z", attempts: Array.from({ length: 30 }, (_, i) => attempt(i + 1, text)) };
    const { attempts } = decide(delivery("j:@k"), { ...view, record }).record;
    assert.equal(attempts.length, 31);
    assert.deepEqual(attempts.map((a) => a.error?.length), [...Array(11).fill(203), ...Array(19).fill(2000), undefined]);
    attempts.slice(0, -1).reverse().forEach((a, i) => {
      const share = Math.max(32_768 / 2 ** i, 256);
      assert.ok(quoted(a.output) <= share && quoted(a.output) > Math.min(share / 3, 25), `${quoted(a.output)} of ${share}`);
    });
    assert.equal(record.attempts[0].error.length, 2000, "the record itself was changed");
  }
});

test("an attempt does not start before its message was stored", () => {
  const d = delivery("j:2026-11-21T07:00:00Z"), at = (ms) => parseInstant("2026-11-21T07:00:00Z") - BigInt(ms) * 1_000_000n;
  const started = (now, error) => decide({ ...d, message: { ...d.message, due: at(1000) } }, { ...view, now, error }).record.attempts[0].started;
  assert.equal(started(at(3), 4), "2026-11-21T07:00:00Z");
  assert.equal(started(at(5), 4), "2026-11-21T06:59:59.995Z");
});

test("the result of an attempt takes the place of an earlier one", () => {
  const claimed = { v: 1, id: "j:@k", state: "running", attempt: 1, max_attempts: 1, published: "2026-11-21T07:00:00Z", result: { old: true } };
  for (const value of [undefined, 2]) assert.equal(complete(claimed, 3, parseInstant("2026-11-21T07:00:01Z"), 3_600_000, { output: "", value }).result, value);
});
