import test from "node:test";
import assert from "node:assert/strict";
import { PermissionViolationError, headers } from "@nats-io/transport-node";
import { trigger, wait } from "../index.js";

// broker has the job j, and one message that waits in the stream of slots, of the run j:@k. It answers a
// direct request for the oldest message of a stream as oldest says; its clock is at now.
function broker(oldest, now) {
  const published = [], open = new Set();
  const definition = Buffer.from(JSON.stringify({ v: 1, job: { name: "j" } })).toString("base64");
  return {
    published, open,
    options: { inboxPrefix: "_INBOX" },
    features: { get: () => ({ ok: true }) },
    async request(subject) {
      if (subject.startsWith("$JS.API.DIRECT.GET.")) return oldest(subject);
      const json = (value) => ({ json: () => value });
      if (subject === "$JS.API.STREAM.MSG.GET.KV_cronce_jobs") return json({ message: { seq: 1, time: "2026-11-26T00:00:00Z", data: definition } });
      if (subject.startsWith("$JS.API.STREAM.INFO.")) return json({ ts: now });
      if (subject.startsWith("$JS.API.")) return json({ error: { err_code: 10037 } });
      published.push(subject);
      return json({ seq: 1 });
    },
    subscribe(inbox, { callback }) {
      open.add(callback);
      return { unsubscribe: () => open.delete(callback) };
    },
    publish() {
      const head = headers();
      head.set("Cronce-Slot", "j:@k");
      head.set("Nats-Num-Pending", "0");
      for (const callback of open) setImmediate(() => callback(null, { data: new Uint8Array(), headers: head }));
    },
  };
}

const stored = () => {
  const head = headers();
  head.set("Nats-Time-Stamp", "2026-11-26T00:00:00Z");
  return { headers: head };
};
const none = () => ({ headers: headers() });
const refuse = (cause) => { throw Object.assign(new Error("request failed"), { cause }); };

test("trigger publishes no run that waits for longer than the duplicate window by the broker's clock", async () => {
  for (const [now, published] of [["2026-11-26T00:01:44Z", ["cronce.slot.default.j"]], ["2026-11-26T00:02:00Z", []]]) {
    const nc = broker((subject) => (subject.endsWith("_slots") ? stored() : none()), now);
    assert.equal(await trigger(nc, "j", { key: "k" }), "j:@k");
    assert.deepEqual([nc.published, nc.open.size], [published, 0]);
  }
});

test("trigger publishes a run if its login may not look for one that waits", async () => {
  const nc = broker(() => refuse(new PermissionViolationError("no", "publish", "x")));
  await trigger(nc, "j", { key: "k" });
  assert.deepEqual(nc.published, ["cronce.slot.default.j"]);
});

test("trigger takes any timeout", async () => {
  for (const timeout of [Infinity, 2 ** 31, 1.5]) {
    const nc = broker(none, "2026-11-26T00:00:00Z");
    await trigger(nc, "j", { timeout });
    assert.equal(nc.published.length, 1);
  }
});

test("wait rejects if there is no such namespace", async () => {
  const nc = { request: async () => ({ json: () => ({ error: { err_code: 10059, description: "stream not found" } }) }) };
  await assert.rejects(wait(nc, "j:@k", { namespace: "typo", signal: AbortSignal.timeout(2000) }), /namespace typo: it has no ledger/);
});
