import test from "node:test";
import assert from "node:assert/strict";
import { formatInstant } from "../lib/values.js";
import { entryOf, vectors } from "../vectors.js";

const told = (at) => at && formatInstant(at);

// This example reads the registry, and writes nothing there.
for (const c of vectors("registry")) {
  test(`registry: ${c.name}`, () => {
    for (const s of c.steps.filter((s) => s.value)) {
      const entry = entryOf(s);
      const plans = entry.plans.map((p) => ({ schedule: p.plan.schedule, after: told(p.from), until: told(p.to) }));
      assert.deepEqual(plans, s.plans.map((p) => ({ until: undefined, ...p })), `revision ${s.revision}`);
      const pauses = entry.pauses.map((p) => ({ from: told(p.from), to: told(p.to) }));
      assert.deepEqual(pauses, (s.pauses ?? []).map((p) => ({ to: undefined, ...p })), `revision ${s.revision}`);
    }
  });
}
