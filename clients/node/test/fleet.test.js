import test from "node:test";
import assert from "node:assert/strict";
import { complaints, idle, run } from "../lib/fleet.js";
import { trigger } from "../lib/orders.js";

test("run rejects when the connection is closed for good", async () => {
  const gone = new Error("connection refused"), lost = async () => { throw gone; };
  const nc = { options: {}, info: {}, closed: async () => gone, request: lost, publish() {} };
  await assert.rejects(run(nc, { signal: new AbortController().signal }), { message: /connection is closed/, cause: gone });
});

test("run refuses names that no program could read in the node's record", async () => {
  const signal = new AbortController().signal, nc = { closed: () => new Promise(() => {}), request() { throw new Error("it asks the broker"); } };
  await assert.rejects(run(nc, { signal, handlers: { "send mail": () => {} } }), /job "send mail"/);
  await assert.rejects(run(nc, { signal, queues: ["a.b"] }), /queue "a.b"/);
  await assert.rejects(run(nc, { signal, namespace: "a.b" }), /namespace "a.b"/);
});

test("run refuses options with which it would run nothing", async () => {
  const signal = new AbortController().signal, nc = { closed: () => new Promise(() => {}), request() { throw new Error("it asks the broker"); } };
  await assert.rejects(run(nc, { signal, handlers: { j: undefined } }), /handler of job j: want a function/);
  for (const places of [0, -1, NaN, 1.5, Infinity]) await assert.rejects(run(nc, { signal, places }), /places .*: want 1 or more/);
});

test("run logs once what the server complains about", async () => {
  const said = [], stop = new AbortController(), error = (message) => ({ type: "error", error: new Error(message) });
  const events = (async function* () {
    yield* [error("permissions violation"), { type: "reconnect" }, error("permissions violation"), error("another")];
  })();
  await complaints({ status: () => Object.assign(events, { stop() {} }) }, stop.signal, (line) => said.push(line));
  assert.deepEqual(said, ["permissions violation", "another"]);
});

test("run and trigger refuse an option that does not exist, and run one without a signal", async () => {
  const signal = new AbortController().signal, nc = { closed: () => new Promise(() => {}), request() { throw new Error("it asks the broker"); } };
  await assert.rejects(run(nc, { signal, concurrency: 4 }), /no option concurrency/);
  await assert.rejects(run(nc, {}), /option signal: want an AbortSignal/);
  await assert.rejects(run(nc), /option signal/);
  await assert.rejects(trigger(nc, "j", { delay: 4 }), /no option delay/);
  for (const at of ["tomorrow", null, new Date("x")]) await assert.rejects(trigger(nc, "j", { at }), /at is not a valid Date/);
});

test("run says which of its handlers have nothing to do", () => {
  const entries = new Map([["here", "default"], ["there", "other"]].map(([name, queue]) => [name, { job: { name, queue } }]));
  assert.deepEqual(idle({ entries, unreadable: new Map([["broken", 1]]) }, ["default"], ["here", "there", "nowhere", "broken"]), [
    "job there: its slots are in queue other, which this process does not serve (option queues)", 'job nowhere: it is not in the registry: "cronce job apply" adds it',
  ]);
});
