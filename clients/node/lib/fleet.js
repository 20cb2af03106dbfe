// A process in the fleet: one incarnation after the other, each a node with a producer
// and a worker.
import { Node } from "./node.js";
import { Producer } from "./producer.js";
import { Registry } from "./registry.js";
import { Store, pause } from "./store.js";
import { Invalid } from "./names.js";
import { Worker } from "./worker.js";
import { parseDuration } from "./values.js";

export { Permanent } from "./worker.js";

// run takes part until the signal: nc is a connection, queues and handlers say for what
// (handlers: a job's name to async (run) => output). log is called with lines of text.
export async function run(nc, { namespace = "cronce", name, queues = ["default"], handlers = {}, produce = true, places, grace = 25_000, clockOffset = 0, signal, log = () => {} }) {
  const store = new Store(nc, namespace);
  const settings = await adopt(store, signal, log);
  if (!settings) return;
  const registry = new Registry(store, log);
  await registry.run(signal);
  while (!signal.aborted) {
    let worker;
    const node = new Node(store, settings.lease, name, clockOffset, () => ({
      producer: produce, worker: true, queues, handlers: Object.keys(handlers).sort(), running: worker?.running ?? 0,
    }));
    const common = { store, node, registry, horizon: settings.horizon, log };
    worker = new Worker({ ...common, queues, handlers, places });
    // A node that the broker has not answered yet has nothing to end.
    const abandon = () => { if (node.revision === 0) node.end("stopped"); };
    signal.addEventListener("abort", abandon, { once: true });
    if (signal.aborted) abandon();
    await node.start();
    signal.removeEventListener("abort", abandon);
    if (node.trusted()) log(`node ${node.name} takes part`);
    const stop = AbortSignal.any([signal, node.signal]);
    const working = worker.run(stop, grace), producing = produce ? new Producer(common).run(stop) : undefined;
    await Promise.all([working, producing]);
    if (node.signal.aborted) log(node.signal.reason.message);
    await node.stop(worker.running > 0);
    if (!signal.aborted) await pause(100, signal);
  }
}

// adopt reads what the namespace was made with, as soon as the broker answers. This program
// creates none. undefined: the signal came first.
async function adopt(store, signal, log) {
  for (; !signal.aborted; await pause(500, signal)) {
    try {
      const { value } = await store.read("state", "settings");
      if (!value) throw new Invalid("it has no settings");
      return { lease: parseDuration(value.lease), horizon: parseDuration(value.horizon) };
    } catch (err) {
      const why = `namespace ${store.namespace}: ${err.message}`;
      if (err.refused || err instanceof Invalid) throw new Error(`${why}; "cronce setup" makes what is not there`);
      log(why);
    }
  }
  return undefined;
}
