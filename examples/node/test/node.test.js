import test from "node:test";
import assert from "node:assert/strict";
import { challenge } from "../lib/node.js";
import { parseDuration, parseInstant } from "../lib/values.js";
import { vectors } from "../vectors.js";

const unsigned = ({ nonce, ...value }) => value;

for (const c of vectors("fences")) {
  test(`fence: ${c.name}`, () => {
    const step = challenge(c.node, c.by, c.value && JSON.stringify(c.value), parseDuration(c.lease), parseDuration(c.still), parseInstant(c.now));
    if (!c.written) {
      assert.equal(step.dead ?? false, c.dead);
      assert.equal(step.wait, c.wait && parseDuration(c.wait));
      return;
    }
    assert.deepEqual(unsigned(step.value), unsigned(c.written));
    if (!c.moved) return;
    // The write was refused: the stored value names the writer that was faster.
    const then = challenge(c.node, c.by, JSON.stringify(c.moved), parseDuration(c.lease), 0, parseInstant(c.now));
    assert.equal(then.dead ?? false, c.dead);
    assert.equal(then.wait, c.wait && parseDuration(c.wait));
  });
}
