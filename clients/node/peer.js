// Runs this client for "cronce-lab conformance peer" and "cronce-lab torture --node-cmd". Its environment says what it does,
// and it appends what its handlers do to the record: docs/conformance.md describes both.
import { appendFileSync } from "node:fs";
import { createConnection } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { uptime } from "node:os";
import { Permanent, connect, run as full, trigger, wait } from "./index.js";
import { run as minimal } from "./minimal.js";

const env = (name, otherwise) => process.env[`CRONCE_UNDER_TEST_${name}`] ?? otherwise;
const run = process.argv[2] === "minimal" ? minimal : full;
const stop = new AbortController();
let nc;
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => (nc ? stop.abort() : process.exit(0)));

// boot returns the nanoseconds since the machine started, on a clock that all of its processes share and that goes on
// while it is suspended. process.hrtime stops during suspend, and uptime has only hundredths of a second.
const suspended = Math.round(uptime() - Number(process.hrtime.bigint()) / 1e9) * 1e9;
const boot = () => Number(process.hrtime.bigint()) + suspended;

// append adds one line to the record with one synchronous write.
const append = (line) => appendFileSync(env("RECORD"), JSON.stringify({ ...line, process: env("PROCESS"), boot: boot() }) + "\n");
const record = (what, slot, more) => append({ what, slot: slot.id, attempt: slot.attempt, fence: slot.fence, node: slot.node, ...more });

// work is the handler. Its payload is {"ms", "deaf", "until", "result"}: it works for ms milliseconds. With deaf, it
// ignores that its context ends; with until too, it works until a connection to this address is closed, for at most
// ms. result is "ok", "error" or "permanent".
async function work(slot) {
  const { ms = 0, deaf, until, result = "ok" } = slot.payload ? JSON.parse(slot.payload) : {};
  const cancelled = () => record("cancel", slot, { cause: slot.signal.reason?.code === "LEASE_LOST" ? "lease lost" : String(slot.signal.reason?.message) });
  record("start", slot);
  slot.signal.addEventListener("abort", cancelled, { once: true });
  let end = "error";
  try {
    if (deaf) await (until ? disconnected(until, ms) : sleep(ms));
    else await sleep(ms, undefined, { signal: slot.signal });
    slot.signal.throwIfAborted();
    end = result;
  } finally {
    slot.signal.removeEventListener("abort", cancelled);
    record("end", slot, { result: end });
  }
  if (result === "permanent") throw new Permanent("as the payload says");
  if (result === "error") throw new Error("as the payload says");
  return "done";
}

// disconnected waits until the connection to the address is closed or refused, or the time is over.
const disconnected = (address, ms) => new Promise((done) => {
  const [host, port] = address.split(":"), socket = createConnection({ host, port });
  socket.setTimeout(ms, () => socket.destroy()).on("error", () => {}).on("close", done).resume();
});

// order triggers the run with this ID, and waits for its outcome.
async function order(id, options) {
  const [job, key] = id.split(":@"), namespace = env("NAMESPACE");
  append({ what: "trigger", slot: id });
  try {
    await trigger(nc, job, { key, namespace, ...options });
  } catch (err) {
    if (err instanceof RangeError) append({ what: "outcome", slot: id, result: "refused" });
    throw err;
  }
  const { state } = await wait(nc, id, { namespace });
  append({ what: "outcome", slot: id, result: state });
}

// Torture needs to know when this process did not run. It closes the standard input to end the process.
if (env("PROCESS")) {
  append({ what: "up" });
  let last = boot();
  setInterval(() => {
    const now = boot();
    if (now - last > 150e6) append({ what: "pause", from: last });
    last = now;
  }, 20).unref();
  process.stdin.on("end", () => process.exit(1)).resume();
  process.stdin.unref?.();
}

nc = await connect({ servers: env("SERVER"), maxReconnectAttempts: -1, reconnectTimeWait: 100, waitOnFirstConnect: true });
const later = (text) => ({ at: new Date(text) });
const large = (size) => ({ payload: { pad: "x".repeat(size - '{"pad":""}'.length) } });
for (const [name, options] of Object.entries({ TRIGGER: () => ({}), TRIGGER_LATER: later, TRIGGER_LARGE: large })) {
  const [id, text] = env(name, "").split(" ");
  if (id && run === full) order(id, options(text)).catch((err) => console.error(err.message));
}
try {
  await run(nc, {
    namespace: env("NAMESPACE"), name: env("NAME", "client"), queues: env("QUEUES", "default").split(",").filter(Boolean),
    produce: env("PRODUCE", "1") === "1", clockOffset: Number(env("CLOCK_OFFSET_MS", "0")), grace: 2000, signal: stop.signal,
    handlers: Object.fromEntries(env("JOBS", "").split(",").filter(Boolean).map((job) => [job, work])),
    log: (line) => console.error(line),
  });
} finally {
  setTimeout(() => process.exit(), 1000).unref(); // nc.close may wait for a server that does not answer
  await nc.close();
}
