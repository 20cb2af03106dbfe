import test from "node:test";
import assert from "node:assert/strict";
import { due } from "../lib/due.js";
import { parseEntry } from "../lib/definition.js";
import { fromMs, optional, parseDuration, parseInstant } from "../lib/values.js";
import { rawMember } from "../lib/values.js";
import { text, vectors } from "../vectors.js";

const byID = (a, b) => (a.headers["Nats-Msg-Id"] < b.headers["Nats-Msg-Id"] ? -1 : 1);

// The definitions as they would be stored: not what JSON.parse makes of "1.50".
const file = text("../../docs/protocol/producers.json");
let at = 0;

for (const c of vectors("producers")) {
  at = file.indexOf('"value": {', at + 1);
  const value = rawMember(`{${file.slice(at)}`, "value").replace(/\n\s*/g, "").replace(/": /g, '":');
  test(`producer: ${c.name}`, () => {
    const entry = parseEntry(value, c.definition.revision, parseInstant(c.definition.time));
    const w = c.watermark;
    const position = w && { time: parseInstant(w.time), revision: w.registry_revision, registryTime: optional(w.registry_time) };
    const { messages, ranges } = due(position, [entry], parseInstant(c.now) - fromMs(parseDuration(c.clock_error ?? "0s")), parseDuration(c.horizon), "a-1-1-x");
    let sent = [...messages, ...ranges];
    if (c.missed_singly) {
      const singly = sent.filter((m) => m.headers["Cronce-Missed"] === "1").map((m) => m.headers["Cronce-Slot"]);
      assert.deepEqual({ count: singly.length, first: singly[0], last: singly.at(-1) }, c.missed_singly);
      sent = sent.filter((m) => m.headers["Cronce-Missed"] !== "1");
    }
    const got = sent.map(({ queue, headers, body }) => ({ queue, headers, ...(body && { body }) }));
    assert.deepEqual(got.sort(byID), (c.messages ?? []).sort(byID));
  });
}
