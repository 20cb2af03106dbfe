import test from "node:test";
import assert from "node:assert/strict";
import { enter, leave } from "../lib/lock.js";
import { vectors } from "../vectors.js";

for (const c of vectors("locks")) {
  test(`lock: ${c.name}`, () => {
    if (c.leave) {
      const { next, woken } = leave(c.lock, c.slot.id, c.places);
      assert.deepEqual(next, c.next);
      assert.deepEqual(woken, c.woken ?? []);
      return;
    }
    const { ask, place, next } = enter(c.lock, { slot: c.slot, overlap: c.overlap, places: c.places }, new Map(Object.entries(c.ended ?? {})));
    assert.deepEqual(ask, c.ask);
    assert.equal(place?.kind, c.place);
    assert.equal(place?.inWay, c.in_way);
    assert.equal(place?.displaces, c.displaces);
    assert.deepEqual(next, c.next);
  });
}
