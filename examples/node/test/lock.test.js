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
    const before = crowd(c.crowd ?? 0);
    const lock = { ...c.lock, waiting: [...before, ...(c.lock.waiting ?? [])] };
    const { ask, place, next } = enter(lock, { slot: c.slot, overlap: c.overlap, places: c.places, reoffered: c.reoffered }, new Map(Object.entries(c.ended ?? {})));
    assert.deepEqual(ask, c.ask);
    assert.equal(place?.kind, c.place);
    assert.equal(place?.inWay, c.in_way);
    assert.equal(place?.displaces, c.displaces);
    assert.deepEqual(next, c.next && { ...c.next, ...(next.waiting && { waiting: [...before, ...(c.next.waiting ?? [])] }) });
  });
}

// crowd are those that wait before the ones that a vector lists.
function crowd(n) {
  const at = "2026-11-21T06:00:00Z";
  return Array.from({ length: n }, (_, i) => ({ id: `report:@${i + 1}`, at, since: at })).sort((a, b) => (a.id < b.id ? -1 : 1));
}
