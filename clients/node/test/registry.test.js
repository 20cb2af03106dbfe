import test from "node:test";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { parseEntry } from "../lib/definition.js";
import { formatInstant, parseInstant } from "../lib/values.js";

const told = (at) => at && formatInstant(at);
const vectors = JSON.parse(readFileSync(new URL("../../../docs/protocol/registry.json", import.meta.url), "utf8"));

// This client writes no definitions, so the kit cannot ask it what it reads in one.
for (const c of vectors) {
  test(`registry: ${c.name}`, () => {
    for (const s of c.steps.filter((s) => s.value)) {
      const entry = parseEntry(JSON.stringify(s.value), s.revision, parseInstant(s.time));
      const plans = entry.plans.map((p) => ({ schedule: p.plan.schedule, after: told(p.from), until: told(p.to) }));
      assert.deepEqual(plans, s.plans.map((p) => ({ until: undefined, ...p })), `revision ${s.revision}`);
      const pauses = entry.pauses.map((p) => ({ from: told(p.from), to: told(p.to) }));
      assert.deepEqual(pauses, (s.pauses ?? []).map((p) => ({ to: undefined, ...p })), `revision ${s.revision}`);
    }
  });
}
