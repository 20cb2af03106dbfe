// Drives a fleet with a client whose types openapi-typescript has made from the OpenAPI document.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.d.ts";

declare const process: { argv: string[] };

const api = createClient<paths>({ baseUrl: process.argv[2] });

function fail(what: string, problem: components["schemas"]["Problem"] | undefined): never {
  throw new Error(`${what}: ${JSON.stringify(problem)}`);
}

// A job. Nothing is there yet, so the first write creates it, and another one is refused.
const created = { params: { path: { job: "from-typescript" }, header: { "If-None-Match": "*" as const } }, body: { schedule: "0 7 * * *" } };
const put = await api.PUT("/jobs/{job}", created);
if (put.error) fail("create a job", put.error);
const again = await api.PUT("/jobs/{job}", { ...created, body: { schedule: "0 8 * * *" } });
if (again.response.status !== 412) fail("a job was created twice", again.error);
const next = await api.GET("/jobs/{job}/next", { params: { path: created.params.path, query: { limit: 3 } } });
if (next.error) fail("the next slots", next.error);
const removed = await api.DELETE("/jobs/{job}", { params: { path: created.params.path } });
if (removed.error) fail("remove the job", removed.error);

// A run of a job that the fleet has, and its outcome. The same key is the same run.
const named = { path: { job: "greet" } };
const order = { params: { ...named, header: { "Idempotency-Key": "order-7" } }, body: { payload: { name: "Erin" } } };
const run = await api.POST("/jobs/{job}:trigger", order);
if (run.error || run.response.status !== 201) fail("trigger", run.error);
const same = await api.POST("/jobs/{job}:trigger", order);
if (same.error || same.response.status !== 200 || same.data.id !== run.data.id) fail("trigger again", same.error);
const slot = { path: { id: run.data.id } };
for (;;) {
  const wait = await api.GET("/slots/{id}/wait", { params: { ...slot, query: { timeout: "30s" } } });
  if (wait.error) fail("wait", wait.error);
  if (wait.response.status === 200) break;
}
const ended = await api.GET("/slots/{id}", { params: slot });
if (ended.error) fail("read the slot", ended.error);
if (ended.data.state !== "succeeded") throw new Error(`the run ended ${JSON.stringify(ended.data)}`);
const story = await api.GET("/slots/{id}/explain", { params: slot });
if (story.error) fail("explain the slot", story.error);

// An order on the job, and one that does not hold.
const paused = await api.POST("/jobs/{job}:pause", { params: named });
if (paused.error || !paused.data.changed) fail("pause", paused.error);
const retried = await api.POST("/slots/{id}:retry", { params: slot });
if (retried.response.status !== 409 || !retried.error?.detail) fail(`a success was retried: ${retried.response.status}`, retried.error);
const slots = await api.GET("/slots", { params: { query: { job: "greet", state: ["succeeded"] } } });
if (slots.error) fail("list the slots", slots.error);
const gone = await api.GET("/jobs/{job}", { params: { path: { job: "nothing" } } });
if (gone.response.status !== 404 || !gone.error?.type.endsWith("#not-found")) fail("a job that is not there", gone.error);

console.log(JSON.stringify({ state: ended.data.state, output: ended.data.output, slots: slots.data.rows.length, why: story.data.why }));
