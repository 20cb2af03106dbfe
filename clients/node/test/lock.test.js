import assert from "node:assert/strict";
import { test } from "node:test";

import { entrant } from "../lib/lock.js";
import { parseEntry } from "../lib/lines.js";

test("a slot has begun if it has a record that does not wait, and its at is that of its first message", () => {
  const slot = { job: "report", token: "one" }, published = 1_800_000_000_000_000_000n;
  const view = { now: 0n, self: "n", entry: { job: { name: "report", overlap: "queue" } } };
  for (const [record, fresh, at] of [
    [undefined, true, "2027-01-15T08:00:00Z"],
    [{ state: "waiting", published: "2027-01-15T07:00:00Z" }, true, "2027-01-15T07:00:00Z"],
    [{ state: "retrying", published: "2027-01-15T07:00:00Z" }, false, "2027-01-15T07:00:00Z"],
  ]) {
    const e = entrant({ message: { slot }, published }, { ...view, record });
    assert.deepEqual([e.fresh, e.slot.at, e.slot.node], [fresh, at, "n"]);
  }
});

test("an entry that cannot be read has only its sequence", () => {
  const entry = { v: 1, id: "j:@k", at: "2026-11-21T07:00:00Z" };
  assert.deepEqual(parseEntry("j", JSON.stringify(entry), 7), { id: "j:@k", at: "2026-11-21T07:00:00Z", on_time: false, sequence: 7 });
  for (const wrong of [{ ...entry, v: 2 }, { ...entry, id: "other:@k" }, { ...entry, id: "j:@k#1of2" }, { ...entry, at: "noon" }, { ...entry, on_time: "yes" }, { v: 1 }]) {
    assert.deepEqual(parseEntry("j", JSON.stringify(wrong), 7), { sequence: 7 });
  }
  assert.deepEqual(parseEntry("j", "no JSON", 7), { sequence: 7 });
});
