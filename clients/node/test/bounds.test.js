import test from "node:test";
import assert from "node:assert/strict";
import { decodeAs } from "../lib/bounds.js";

test("texts for people are cut", () => {
  const record = decodeAs("record", JSON.stringify({ v: 1, id: "report:@k", state: "failed", error: "x".repeat(10_000) }));
  assert.equal(record.error.length, 4099);
});
