import test from "node:test";
import assert from "node:assert/strict";
import { Invalid, parseSlot, slotID, slotKey } from "../lib/names.js";
import { vectors } from "../vectors.js";

test("each slot has one ID and one key", () => {
  for (const c of vectors("names")) {
    if (!c.id) continue; // keys alone: this program writes keys and never reads one
    if (c.refused) {
      assert.throws(() => parseSlot(c.id), Invalid, c.id);
      continue;
    }
    const slot = parseSlot(c.id);
    assert.equal(slotID(slot), c.id);
    assert.equal(slotKey(slot), c.key);
    assert.equal(slot.job, c.job);
    assert.equal(slot.at, c.at === undefined ? undefined : Date.parse(c.at) / 1000);
    assert.equal(slot.token, c.token);
    assert.equal(slot.shard, c.shard);
    assert.equal(slot.shards, c.shards);
  }
});
