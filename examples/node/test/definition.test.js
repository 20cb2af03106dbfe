import test from "node:test";
import assert from "node:assert/strict";
import { canonical, hashOfDefinition } from "../lib/definition.js";
import { rawMember } from "../lib/values.js";
import { text, vectors } from "../vectors.js";

test("a definition's canonical text and its hash", () => {
  const file = text("../../docs/protocol/definitions.json");
  let at = 0;
  for (const c of vectors("definitions")) {
    // The text, not what JSON.parse makes of it: "1.50" is 1.50.
    at = file.indexOf('"job": {', at + 1);
    const raw = rawMember(`{${file.slice(at)}`, "job");
    assert.equal(canonical(raw), c.canonical);
    assert.equal(hashOfDefinition(raw), c.hash);
  }
});
