import assert from "node:assert/strict";
import { test } from "node:test";

import { entrant } from "../lib/lock.js";
import { Locks } from "../lib/locks.js";

test("a slot with a record may have been reopened since it entered its lock", () => {
  const slot = { job: "report", token: "one" };
  const view = { now: 0n, entry: { job: { name: "report", overlap: "queue" } } };
  for (const [message, record, reopened] of [
    [{ slot }, undefined, false],
    [{ slot }, { state: "retrying", attempts: [] }, true],
    [{ slot, backfill: true }, undefined, true],
    [{ slot, offer: 2 }, undefined, true],
  ]) assert.equal(Boolean(entrant({ message, published: 0n }, { ...view, record }).reoffered), reopened);
});

// locks returns the locks of a store that has these values, and the messages that they publish.
function locks(values, end) {
  const woken = [], store = {
    namespace: "ns", nc: { publish: (subject, id) => woken.push(`${subject} ${id}`) },
    async read(bucket, key) { return { value: values[`${bucket}/${key}`], revision: 1 }; },
    async write() { return { won: 2 }; },
  };
  return { woken, locks: new Locks(store, { name: "n", lease: 1000, now: () => 0n, trusted: () => true }, end) };
}

test("a slot that removes others from its lock wakes those that get their places", async () => {
  const stay = (id) => ({ id, at: "2026-11-21T07:00:00Z", since: "2026-11-21T07:00:00Z" });
  const { woken, locks: all } = locks({
    "state/lock.j": { v: 1, job: "j", holders: [stay("j:@1"), stay("j:@2")], waiting: [stay("j:@3"), stay("j:@4"), stay("j:@5")] },
    "ledger/j.t.1": { state: "succeeded" }, "ledger/j.t.2": { state: "running" }, "ledger/j.t.3": { state: "retrying" }, "ledger/j.t.4": { state: "retrying" }, "ledger/j.t.5": { state: "retrying" },
  });
  const slot = { job: "j", token: "6" }, published = 1_800_000_000_000_000_000n;
  const place = await all.enter({ message: { slot }, published }, { now: published, horizon: 1000, entry: { job: { name: "j", overlap: "queue", concurrency: 2 } } });
  assert.equal(place.kind, "waits");
  assert.deepEqual(woken, ["ns.lock.j j:@3"]);
});

test("a slot that is split is replaced by other workers", async () => {
  const ended = [], end = (record) => ended.push(record.id);
  for (const shards of [undefined, 2]) await locks({ "ledger/j.t.1": { id: "j:@1", state: "running", node: "", shards } }, end).locks.replace("j:@1", "j:@2");
  assert.deepEqual(ended, ["j:@1"]);
});
