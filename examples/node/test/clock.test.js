import test from "node:test";
import assert from "node:assert/strict";
import { BrokerClock } from "../lib/clock.js";
import { parseDuration, parseInstant } from "../lib/values.js";
import { vectors } from "../vectors.js";

const ms = (text) => Number(parseInstant(text)) / 1e6;

for (const c of vectors("clocks")) {
  test(`clock: ${c.name}`, () => {
    const clock = new BrokerClock();
    for (const h of c.heartbeats ?? []) clock.observe(ms(h.sent), ms(h.acknowledged), ms(h.stamp));
    const [at, near] = [ms(c.at), (got, want, what) => assert.ok(Math.abs(got - want) < 0.001, `${what} ${got}, want ${want}`)];
    near(clock.offset, parseDuration(c.offset), "offset");
    near(clock.error(at), parseDuration(c.error), "error");
  });
}
