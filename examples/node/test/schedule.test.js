import test from "node:test";
import assert from "node:assert/strict";
import { Invalid } from "../lib/names.js";
import { parseSchedule } from "../lib/schedule.js";
import { hashOf } from "../lib/hash.js";
import { formatDuration } from "../lib/values.js";
import { text, vectors } from "../vectors.js";

const iso = (at) => new Date(at * 1000).toISOString().replace(".000Z", "Z");

for (const c of vectors("schedules")) {
  test(`schedule: ${c.name}`, () => {
    if (c.refused) return assert.throws(() => parseSchedule(c.job.name, c.job.plan), Invalid);
    const schedule = parseSchedule(c.job.name, c.job.plan);
    const slots = [];
    for (let at = Date.parse(c.after) / 1000; slots.length < c.count; slots.push(at)) {
      at = schedule.next(at);
      if (at === undefined) break;
      assert.ok(schedule.includes(at));
    }
    assert.deepEqual(slots.map(iso), c.slots);
    if (c.delay) assert.equal(formatDuration(schedule.delay * 1000), c.delay);
  });
}

test("the hash of H", () => {
  const all = JSON.parse(text("../../job/testdata/hash.json"));
  assert.ok(all.length > 0);
  for (const v of all) assert.equal(hashOf(v.job, v.field, v.size), v.hash, JSON.stringify(v));
});
