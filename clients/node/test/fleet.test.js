import test from "node:test";
import assert from "node:assert/strict";
import { run } from "../lib/fleet.js";

test("run rejects when the connection is closed for good", async () => {
  const gone = new Error("connection refused"), lost = async () => { throw gone; };
  const nc = { options: {}, info: {}, closed: async () => gone, request: lost, publish() {} };
  await assert.rejects(run(nc, { signal: new AbortController().signal }), { message: /connection is closed/, cause: gone });
});
