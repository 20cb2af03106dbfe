import test from "node:test";
import assert from "node:assert/strict";
import os from "node:os";
import { syncBuiltinESMExports } from "node:module";
import { boot } from "../lib/clock.js";
import { Node } from "../lib/node.js";

// machine has clocks that a test moves. reads is how often uptime was called.
let machines = 0;
function machine(t) {
  const clocks = { wall: 1e12 * ++machines, tick: 1e6, up: 5e6, reads: 0 };
  t.mock.method(Date, "now", () => clocks.wall);
  t.mock.method(performance, "now", () => clocks.tick);
  t.mock.method(os, "uptime", () => { clocks.reads++; return clocks.up / 1000; });
  syncBuiltinESMExports();
  t.after(() => { t.mock.restoreAll(); syncBuiltinESMExports(); });
  const move = ({ wall = 0, tick = 0, up = 0 }) => { clocks.wall += wall; clocks.tick += tick; clocks.up += up; };
  boot();
  clocks.reads = 0;
  return { clocks, move };
}

test("the time since the machine started is read once in a few milliseconds, and is never early", (t) => {
  const { clocks, move } = machine(t);
  for (let n = 0; n < 1000; n++) {
    move({ wall: 1, tick: 1, up: 1 });
    const late = clocks.up - boot();
    assert.ok(late >= 0 && late <= 5, `${late} ms late`);
  }
  assert.equal(clocks.reads, 200);
});

// The clock of the process stops while the machine is suspended.
test("a node that slept has no trust, although it had just looked at its clock", (t) => {
  const { move } = machine(t), node = new Node({}, 3000, "n", 0, () => ({}));
  Object.assign(node, { revision: 1, trustedUntil: boot() + 2000 });
  assert.ok(node.trusted());
  move({ wall: 2000, up: 2000 });
  assert.ok(!node.trusted());
});

test("a wall clock that is set hides no time", (t) => {
  const { clocks, move } = machine(t);
  for (const step of [{ wall: -3_600_000, up: 2000 }, { wall: 3_600_000 }, { wall: 0, tick: 5, up: 5 }, { wall: -1, tick: 1, up: 1 }]) {
    move(step);
    assert.equal(boot(), clocks.up, JSON.stringify(step));
  }
});

test("a node's trust ends in time, although its clock may be late", (t) => {
  const { move } = machine(t), node = new Node({}, 3000, "n", 0, () => ({}));
  Object.assign(node, { revision: 1, trustedUntil: boot() + 8 });
  assert.ok(node.trusted());
  move({ wall: 5, tick: 5, up: 5 });
  boot();
  move({ wall: 3, tick: 3, up: 3 }); // boot is late by 3 ms
  assert.ok(!node.trusted());
});
