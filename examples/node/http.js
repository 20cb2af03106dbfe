// A Node.js service without NATS: Cronce runs beside it and calls it over HTTP.
//
//   node http.js
//   cronce run -f sidecar.yaml
//
// The Idempotency-Key is the same for every attempt of a slot. The service notes each key in a
// file when the work is done, before it answers. If it is killed before the answer, it answers
// the next attempt with 200 and does nothing.
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { createServer } from "node:http";

const port = Number(process.env.PORT ?? 8080), file = process.env.DONE ?? "done.txt";
const done = new Set(existsSync(file) ? readFileSync(file, "utf8").split("\n") : []);

const server = createServer(async (request, response) => {
  if (request.url === "/ready") return response.end("ready\n");
  if (request.method !== "POST" || request.url !== "/jobs/report") {
    response.statusCode = 404;
    return response.end();
  }
  const key = request.headers["idempotency-key"];
  let body = "";
  for await (const chunk of request) body += chunk;
  if (!done.has(key)) {
    await new Promise((resolve) => setTimeout(resolve, 200)); // the work
    if (!done.has(key)) {
      done.add(key);
      appendFileSync(file, `${key}\n`);
    }
  }
  const of = request.headers["cronce-slot"] ?? request.headers["cronce-slot-id"]; // a triggered run has no instant
  response.end(`report ${JSON.parse(body).format} of ${of} is done\n`);
});

server.listen(port, "127.0.0.1", () => console.error(`listening on ${port}`));
process.on("SIGTERM", () => { server.close(); server.closeIdleConnections(); });
