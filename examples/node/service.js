// A service whose jobs add a line to a file: node service.js --server nats://...
//   --job NAME (repeatable)  --queue NAME (repeatable)  --file FILE  --work MS
import { appendFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { Permanent, connect, run } from "../../clients/node/index.js"; // in your program: "@cronce-io/client"

const { values: flags } = parseArgs({
  options: {
    server: { type: "string", default: "nats://127.0.0.1:4222" }, namespace: { type: "string", default: "cronce" },
    name: { type: "string", default: "node-js" }, queue: { type: "string", multiple: true, default: ["default"] },
    job: { type: "string", multiple: true, default: [] }, file: { type: "string", default: "/dev/stdout" },
    work: { type: "string", default: "0" }, "no-produce": { type: "boolean", default: false },
  },
});

const stop = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => stop.abort());

// work is what a job does. It ends when its signal aborts, because another worker may have the
// slot by then. With the slot's ID and the fence, a database can take the effect once.
async function work(slot) {
  if (!slot.payload.startsWith("{") && slot.payload !== "") throw new Permanent("want an object as payload");
  appendFileSync(flags.file, `start ${slot.id} ${slot.attempt} ${slot.fence} ${flags.name}\n`);
  await new Promise((done, fail) => {
    const timer = setTimeout(done, Number(flags.work));
    slot.signal.addEventListener("abort", () => { clearTimeout(timer); fail(slot.signal.reason); });
  });
  appendFileSync(flags.file, `end ${slot.id} ${slot.attempt} ${slot.fence} ${flags.name}\n`);
}

const nc = await connect({ servers: flags.server, maxReconnectAttempts: -1, reconnectTimeWait: 250 });
try {
  await run(nc, {
    namespace: flags.namespace, name: flags.name, queues: flags.queue, produce: !flags["no-produce"], signal: stop.signal,
    handlers: Object.fromEntries(flags.job.map((name) => [name, work])),
    log: (line) => console.error(new Date().toISOString(), line),
  });
} finally {
  setTimeout(() => process.exit(), 1000).unref(); // nc.close may wait for a server that does not answer
  await nc.close();
}
