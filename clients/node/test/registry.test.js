import test from "node:test";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { parseEntry } from "../lib/definition.js";
import { Registry } from "../lib/registry.js";
import { pause } from "../lib/store.js";
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

test("registry: only a definition of which others may know slots holds the watermark up", () => {
  const seen = { time: 0n, pending: 0 }, job = (plan) => JSON.stringify({ v: 1, job: { name: "j", plan } });
  for (const [text, blind] of [
    ["{", false], ["[]", false], ['{"v":1}', false], ['{"v":1,"job":{"name":"x","plan":{"schedule":"@hourly"}}}', false], [job({ schedule: "@hourly", shards: -1 }), false],
    ['{"v":2}', true], [job({ schedule: "@hourly", shade: "blue" }), true], [job({ schedule: "@full-moon" }), true], [job({ schedule: "@hourly", timezone: "Mars/Olympus" }), true],
    [JSON.stringify({ v: 1, job: { name: "j", plan: { schedule: "@hourly" } }, past: [{ from: "2026-11-01T12:00:00Z", plan: { schedule: "@full-moon" } }] }), true],
  ]) {
    const registry = new Registry({}, () => {});
    registry.change({ ...seen, key: "j", text, revision: 1 });
    assert.equal(registry.blind(), blind, text);
    registry.change({ ...seen, key: "j", text: job({ schedule: "@hourly" }), revision: 2 });
    assert.equal(registry.blind(), false, "after it was mended");
  }
});

test("registry: the newest timestamp of a write stays known if a later write has an older one", () => {
  const registry = new Registry({}, () => {});
  for (const [revision, time] of [[1, 20n], [2, 10n]]) registry.change({ key: `j${revision}`, text: undefined, revision, time, pending: 0 });
  assert.deepEqual(registry.known, { revision: 2, time: 20n });
});

test("registry: a definition with a duration that is none cannot be read", () => {
  for (const name of ["timeout", "deadline", "max_backoff"]) {
    assert.throws(() => parseEntry(JSON.stringify({ v: 1, job: { name: "j", [name]: "soon", plan: { schedule: "@hourly" } } }), 1, 0n), /duration/, name);
  }
});

test("registry: a leader that knows less than the message does not say that a job was deleted", async () => {
  const registry = new Registry({ async read() { return { revision: 0 }; } }, () => {});
  await assert.rejects(registry.entry("j", 7), /older than the message/);
  registry.change({ key: "j", text: undefined, revision: 8, time: 0n, pending: 0 });
  assert.equal(await registry.entry("j", 7), undefined);
});

test("a registry that is created again before it was listed is listed all the same", async () => {
  const registry = new Registry({ namespace: "ns" }, () => {}), end = new AbortController(), over = new AbortController();
  registry.watch = async (nc, bucket, signal, { again, ready }) => {
    await pause(1, signal);
    again();
    ready(1);
    await pause(60_000, signal);
  };
  assert.equal(await Promise.race([registry.run(end.signal).then(() => "listed"), pause(5000, over.signal)]), "listed");
  over.abort();
  end.abort();
});
