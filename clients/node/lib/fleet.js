// A process in the fleet: one incarnation after another, each a node with a producer and a worker.
import { Node } from "./node.js";
import { Producer } from "./producer.js";
import { Registry } from "./registry.js";
import { Store, pause, stopWith, unlimited } from "./store.js";
import { Invalid, checkName } from "./names.js";
import { Worker } from "./worker.js";
import { parseDuration } from "./values.js";

export { Permanent } from "./handler.js";

// run takes part in the fleet until the signal aborts, or the connection is closed for good: then it rejects.
// index.d.ts documents its options.
export async function run(nc, { signal, ...options } = {}) {
  if (!(signal instanceof AbortSignal)) throw new TypeError("run: option signal: want an AbortSignal, which ends the run");
  const closed = new AbortController();
  nc.closed().then((err) => closed.abort(err));
  await takePart(nc, { ...options, signal: unlimited(AbortSignal.any([signal, closed.signal])) });
  if (!signal.aborted) throw new Error("the connection is closed, and is not made again", { cause: closed.signal.reason });
}

async function takePart(nc, { namespace = "cronce", name, queues = ["default"], handlers = {}, produce = true, places = 16, grace = 25_000, clockOffset = 0, signal, log = () => {}, ...unknown }) {
  for (const option of Object.keys(unknown)) throw new TypeError(`run: there is no option ${option}`);
  for (const [job, handler] of Object.entries(handlers)) {
    checkName("job", job); // no program could read the node's record
    if (typeof handler !== "function") throw new TypeError(`handler of job ${job}: want a function`);
  }
  for (const queue of queues) checkName("queue", queue);
  if (!Number.isInteger(places) || places < 1) throw new RangeError(`places ${places}: want 1 or more`);
  const store = new Store(nc, namespace);
  const settings = await adopt(store, signal, log);
  if (!settings) return;
  void complaints(nc, signal, log);
  const registry = new Registry(store, log);
  await registry.run(signal);
  for (const line of idle(registry, queues, Object.keys(handlers))) log(line);
  const inflight = new Map(), life = new AbortController(); // of all incarnations
  unlimited(life.signal);
  for (; !signal.aborted; await registry.listed) {
    let worker;
    const node = new Node(store, settings.lease, name, clockOffset, () => ({
      producer: produce, worker: true, queues, running: worker?.running ?? 0,
    }), log, Object.keys(handlers).sort());
    registry.replaced = () => node.end("the registry was created again, or restored");
    const common = { store, node, registry, horizon: settings.horizon, log };
    worker = new Worker({ ...common, queues, handlers, places, inflight, life: life.signal });
    // Before its first heartbeat is acknowledged, a node has nothing to finish, and can end at once.
    const abandon = () => { if (node.revision === 0) node.end("stopped"); };
    signal.addEventListener("abort", abandon, { once: true });
    if (signal.aborted) abandon();
    await node.start();
    signal.removeEventListener("abort", abandon);
    if (node.trusted()) log(`node ${node.name} takes part`);
    const stop = unlimited(AbortSignal.any([signal, node.signal]));
    const working = worker.run(stop, grace), producing = produce ? new Producer(common).run(stop) : undefined;
    await Promise.all([working, producing]);
    if (node.signal.aborted) log(node.signal.reason.message);
    await node.stop(worker.running > 0).catch((err) => log(err.message));
    if (!signal.aborted) await pause(node.revision > 0 ? 100 : 1000, signal); // the record of a node that never lived was refused
  }
  life.abort();
}

// idle says which handlers have nothing to do: those of jobs that do not exist, or that have another queue.
export function idle(registry, queues, handlers) {
  return handlers.filter((job) => !registry.unreadable.has(job)).map((job) => {
    const entry = registry.entries.get(job);
    if (!entry) return `job ${job}: it is not in the registry: "cronce job apply" adds it`;
    if (!queues.includes(entry.job.queue)) return `job ${job}: its slots are in queue ${entry.job.queue}, which this process does not serve (option queues)`;
  }).filter(Boolean);
}

// complaints logs each error once that the server reports, such as a subject to which the login may not publish: such a
// write gets no answer, so it would be repeated without a word.
export async function complaints(nc, signal, log) {
  const events = nc.status(), said = new Set();
  stopWith(signal, events);
  for await (const { type, error } of events) {
    if (type !== "error" || said.has(error.message) || said.size === 100) continue;
    said.add(error.message);
    log(error.message);
  }
}

// adopt reads the settings of the namespace, as soon as the broker answers. This program never creates a
// namespace. It returns undefined if the signal aborts first.
async function adopt(store, signal, log) {
  for (; !signal.aborted; await pause(500, signal)) {
    try {
      const { value } = await store.read("state", "settings");
      if (!value) throw new Invalid("it has no settings");
      return { lease: parseDuration(value.lease), horizon: parseDuration(value.horizon) };
    } catch (err) {
      const why = `namespace ${store.namespace}: ${err.message}`;
      if (err.refused || err instanceof Invalid) throw new Error(`${why}; "cronce setup" creates a namespace`);
      log(why);
    }
  }
  return undefined;
}
