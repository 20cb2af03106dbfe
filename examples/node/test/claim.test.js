import test from "node:test";
import assert from "node:assert/strict";
import { cancelled, complete, decide, release } from "../lib/claim.js";
import { parseMessage } from "../lib/message.js";
import { parseEntry } from "../lib/definition.js";
import { parseDuration, parseInstant } from "../lib/values.js";
import { Invalid, slotID } from "../lib/names.js";
import { vectors } from "../vectors.js";

// What an error says is for people, and every program's own; that there is one is not.
const worded = (value) => JSON.parse(JSON.stringify(value, (name, v) => (name === "error" ? "said" : v)));

for (const c of vectors("claims")) {
  test(`claim: ${c.name}`, () => {
    const message = parseMessage((name) => c.headers[name] ?? "");
    const entry = c.definition && parseEntry(JSON.stringify(c.definition.value), c.definition.revision, parseInstant(c.definition.time));
    const horizon = parseDuration(c.horizon);
    const ledger = { revision: 0 };
    const claims = {};
    c.steps.forEach((s, i) => {
      const now = parseInstant(s.now), d = { message, queue: c.queue, published: parseInstant(c.published), payload: Buffer.from(c.body ?? ""), count: s.delivered };
      const known = s.unread ? { revision: 0 } : { ...ledger };
      const place = s.place && { kind: s.place.place, inWay: s.place.in_way };
      const v = { now, error: parseDuration(s.clock_error ?? "0s"), implausible: s.implausible, self: s.node, horizon, entry: s.deleted ? undefined : entry, place, ownerDead: s.owner_dead, disowned: s.disowned, handles: !s.no_handler, ...known };
      const claim = claims[s.node];
      let record, at;
      if (s.do === "decide") {
        const step = decide(d, v);
        // This program gives back what waits for its place, and slots of deleted jobs.
        const leaves = s.action === "wait" || s.deleted;
        assert.equal(step.do, leaves ? "later" : s.action);
        if (leaves) return;
        if (step.delay) assert.equal(step.delay, parseDuration(s.delay));
        [record, at] = [step.record, v.revision];
      } else if (s.do === "complete") {
        const { retry_after, backoff, ...result } = s.result;
        if (retry_after) result.retryAfter = parseDuration(retry_after);
        [record, at] = [complete(claim.record, claim.fence, now, s.implausible ? Infinity : horizon, { ...result, backoff: parseDuration(backoff ?? "0s") }), claim.fence];
      } else if (s.do === "release") {
        [record, at] = [release(claim.record, now), claim.fence];
      } else {
        const reason = s.request.replaced ? `replaced by ${s.request.by}` : `cancelled by ${s.request.by}`;
        [record, at] = [cancelled(d, v, reason), v.revision];
      }
      assert.equal(at === undefined || !record ? undefined : at, s.at);
      if (!record) return;
      record = { ...record, nonce: `${s.node}#${i + 1}` };
      assert.deepEqual(worded(record), worded(s.record));
      assert.equal(at !== ledger.revision, s.conflict ?? false);
      if (s.conflict) return;
      Object.assign(ledger, { record, revision: s.wins });
      if (record.state === "running") claims[s.node] = { record, fence: s.wins };
    });
  });
}

// Parts of slots are given back, as if there was no handler for them.
for (const c of vectors("shards")) {
  test(`split slots are left to others: ${c.name}`, () => {
    const message = parseMessage((name) => c.headers[name] ?? "");
    const entry = parseEntry(JSON.stringify(c.definition.value), c.definition.revision, parseInstant(c.definition.time));
    const d = { message, queue: "default", published: parseInstant(c.published), count: 1 };
    const v = { now: parseInstant(c.steps[0].now), self: "A", horizon: parseDuration(c.horizon), entry, handles: true, revision: 0 };
    assert.equal(decide(d, v).do, "later");
  });
}

test("messages are read as the protocol says", () => {
  for (const c of vectors("messages")) {
    const read = () => parseMessage((name) => c.headers[name] ?? "", c.subject);
    if (c.refused) {
      assert.throws(read, Invalid, JSON.stringify(c.headers));
      continue;
    }
    const m = read();
    assert.equal(slotID(m.slot), c.slot);
    assert.equal(m.revision, c.job_revision ?? 0);
    assert.equal(m.node, c.node ?? "");
    assert.equal(m.due, c.due && parseInstant(c.due));
    assert.equal(m.caughtUp, c.caught_up ?? false);
    assert.equal(m.chained, c.chained ?? false);
    assert.equal(m.backfill, c.backfill ?? false);
    assert.equal(m.refused, c.impossible ?? "");
    assert.equal(m.missed, c.missed ?? 0);
    assert.equal(m.missedLast, c.missed_last && parseInstant(c.missed_last));
    assert.equal(m.offer, c.offer ?? 0);
  }
});
