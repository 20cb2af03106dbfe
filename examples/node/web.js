// Four real processes of one web application, as Node's cluster and pre-forking web
// servers have them. Each serves HTTP and starts the scheduler; none is configured as
// the one that schedules, and each slot runs once.
//
//   node web.js --server nats://127.0.0.1:4222 --port 8080
//
// The job "digest" must be in the registry: cronce job apply -f web.yaml
import cluster from "node:cluster";
import { appendFileSync } from "node:fs";
import { createServer } from "node:http";
import { parseArgs } from "node:util";
import { connect, run } from "../../clients/node/index.js"; // in your program: "@cronce-io/client"

const processes = 4;

const { values: flags } = parseArgs({
  options: {
    server: { type: "string", default: "nats://127.0.0.1:4222" }, port: { type: "string", default: "8080" },
    file: { type: "string", default: "/dev/stdout" },
  },
});

const stop = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => stop.abort());

if (cluster.isPrimary) primary();
else await worker();

// primary starts the processes, and another one for each that dies.
function primary() {
  for (let n = 0; n < processes; n++) cluster.fork();
  cluster.on("exit", () => { if (!stop.signal.aborted) cluster.fork(); });
  stop.signal.addEventListener("abort", () => { for (const w of Object.values(cluster.workers)) w.process.kill("SIGTERM"); });
}

async function worker() {
  process.on("disconnect", () => stop.abort()); // the primary is gone
  const web = createServer((_, response) => response.end(`hello from ${process.pid}\n`)).listen(Number(flags.port), "127.0.0.1");
  const nc = await connect({ servers: flags.server, maxReconnectAttempts: -1, reconnectTimeWait: 250 });
  const log = (line) => console.error(process.pid, line);
  await run(nc, { name: "web", handlers: { digest }, signal: stop.signal, log });
  setTimeout(() => process.exit(), 1000).unref(); // nc.close may wait for a server that does not answer
  await nc.close();
  web.close();
  web.closeAllConnections();
  process.disconnect?.();
}

async function digest(slot) {
  appendFileSync(flags.file, `start ${slot.id} ${slot.attempt} ${slot.fence} ${process.pid}\n`);
  await new Promise((done) => setTimeout(done, 100));
  appendFileSync(flags.file, `end ${slot.id} ${slot.attempt} ${slot.fence} ${process.pid}\n`);
}
