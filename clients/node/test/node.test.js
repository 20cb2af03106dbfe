import test from "node:test";
import assert from "node:assert/strict";
import { Node } from "../lib/node.js";

// never is the answer of a broker that does not answer.
const never = () => new Promise(() => {});

test("the second heartbeat does not wait for the first reading of the clock", async (t) => {
  const beats = [];
  let second;
  const beaten = new Promise((done) => { second = done; });
  const store = {
    namespace: "ns", nc: { options: {}, info: {}, request: never },
    async write() {
      if (beats.push(new Date().toISOString()) === 2) second();
      return { won: beats.length };
    },
    // The clock is read only after the second heartbeat.
    async read() {
      await beaten;
      return { revision: beats.length, time: beats.at(-1) };
    },
  };
  const node = new Node(store, 3000, "n", 0, () => ({}));
  t.after(() => node.end("stopped"));
  await node.start();
  assert.ok(beats.length >= 2, `${beats.length} heartbeats`);
  assert.ok(node.trusted(), node.signal.reason?.message);
  assert.ok(node.clock.best, "it started without an estimate of the clock");
});
