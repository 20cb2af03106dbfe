import test from "node:test";
import assert from "node:assert/strict";
import { alertOf, chain } from "../lib/follow.js";
import { parseMessage } from "../lib/message.js";
import { entryOf, vectors } from "../vectors.js";

for (const c of vectors("chains")) {
  test(`chain: ${c.name}`, () => {
    const message = parseMessage((name) => c.headers[name] ?? "");
    const got = chain(entryOf(c.definition), c.records, message, "a-1-1-x");
    const sent = got.map(({ queue, headers, body }) => ({ queue, headers, ...(body && { body }) }));
    assert.deepEqual(sent, c.messages ?? []);
  });
}

for (const c of vectors("alerts")) {
  test(`alert: ${c.name}`, () => {
    const got = alertOf(c.record, c.revision, entryOf(c.definition), "a-1-1-x", "cronce");
    assert.equal(got?.headers["Nats-Msg-Id"], c.msg_id);
    assert.deepEqual(got && JSON.parse(got.body), c.event);
    assert.equal(got?.subject, c.event && `cronce.event.alert.${c.event.job}`);
  });
}
