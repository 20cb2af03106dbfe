import test from "node:test";
import assert from "node:assert/strict";
import { decodeAs } from "../lib/bounds.js";
import { parseEntry } from "../lib/definition.js";
import { chain } from "../lib/follow.js";
import { parseMessage } from "../lib/message.js";
import { parseSchedule } from "../lib/schedule.js";

test("texts for people are cut", () => {
  const record = decodeAs("record", JSON.stringify({ v: 1, id: "report:@k", state: "failed", error: "x".repeat(10_000) }));
  assert.equal(record.error.length, 4099);
});

test("texts are cut after bytes, and between characters", () => {
  const { error } = decodeAs("record", JSON.stringify({ v: 1, id: "report:@k", state: "failed", error: `a${"é".repeat(5000)}` }));
  assert.equal(error, `a${"é".repeat(2047)}...`);
});

test("a revision that no Number holds is written as one that programs can read", () => {
  const record = decodeAs("record", '{"v":1,"id":"report:@k","state":"failed","job_revision":18446744073709551615}');
  assert.equal(record.job_revision, Number.MAX_SAFE_INTEGER);
  assert.equal(parseMessage((name) => ({ "Cronce-Slot": "report:@k", "Cronce-Job-Revision": "18446744073709551615" })[name] ?? "").revision, Number.MAX_SAFE_INTEGER);
});

test("an instant is written again in UTC, and unknown members only where they are kept", () => {
  const record = decodeAs("record", JSON.stringify({ v: 1, id: "report:@k", state: "failed", due: "2026-11-21T09:00:00.50+02:00", x_shade: 1, attempts: [{ attempt: 1, x_shade: 1 }] }));
  assert.deepEqual([record.due, record.x_shade.text, record.attempts[0].x_shade], ["2026-11-21T07:00:00.5Z", "1", undefined]);
});

test("a slot whose record has no time follows others, and is not tried for ever", () => {
  const entry = parseEntry(JSON.stringify({ v: 1, job: { name: "load", plan: { after: ["extract"] } } }), 5, 1n);
  assert.deepEqual(chain(entry, [{ state: "succeeded" }], { slot: { job: "extract", token: "k" } }, "n"), []);
});

test("a schedule that has no slots is given up at once", () => {
  const start = process.cpuUsage().user;
  for (const schedule of ["0 0 30 2 *", "0 0 31 4,6,9,11 *"]) assert.throws(() => parseSchedule("j", { schedule, timezone: "Asia/Tehran" }), /no slot/);
  assert.ok(process.cpuUsage().user - start < 1e6, "more than a second");
});
