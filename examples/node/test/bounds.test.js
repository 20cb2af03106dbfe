import test from "node:test";
import assert from "node:assert/strict";
import { decodeAs } from "../lib/bounds.js";
import { parseEntry } from "../lib/definition.js";
import { Invalid } from "../lib/names.js";
import { UnknownVersion, parseInstant } from "../lib/values.js";
import { vectors } from "../vectors.js";

for (const c of vectors("values")) {
  if (c.kind === "event") continue; // this program reads none
  test(`value: ${c.name}`, () => {
    const read = () => {
      const text = JSON.stringify(c.value);
      if (c.kind === "definition") return parseEntry(text, 7, parseInstant(c.time ?? "2026-11-21T07:00:00Z"));
      return decodeAs(c.kind, text);
    };
    if (c.refused) assert.throws(read, c.refused === "version" ? UnknownVersion : Invalid);
    else assert.doesNotThrow(read);
  });
}

test("texts for people are cut", () => {
  const record = decodeAs("record", JSON.stringify({ v: 1, id: "report:@k", state: "failed", error: "x".repeat(10_000) }));
  assert.equal(record.error.length, 4099);
});
