import test from "node:test";
import assert from "node:assert/strict";
import { PermissionViolationError, headers } from "@nats-io/transport-node";
import { parseEntry } from "../lib/definition.js";
import { follow } from "../lib/follow.js";
import { Store } from "../lib/store.js";
import { fromMs, parseInstant } from "../lib/values.js";

const ended = parseInstant("2026-11-21T07:00:00Z");
const entry = parseEntry(JSON.stringify({ v: 1, job: { name: "j", on_failure: { nats: { subject: "alerts" } }, plan: { schedule: "none" } } }), 1, ended);
const record = { v: 1, id: "j:@k", state: "failed", attempt: 1, finished: "2026-11-21T07:00:00Z" };

// broker stores events, and answers direct gets of their stream. asked has the queries, as objects.
function broker(events, { denied = false } = {}) {
  const asked = [], stored = [];
  let callback;
  const message = (seq, pending) => {
    const head = headers();
    head.set("Nats-Sequence", String(seq));
    head.set("Nats-Num-Pending", String(pending));
    return { headers: head, data: Buffer.from(JSON.stringify(events[seq - 1])) };
  };
  const nc = {
    options: { inboxPrefix: "_INBOX" },
    features: { get: () => ({ ok: true }) },
    async request(subject, body, { headers: head }) {
      if (subject === "$JS.API.DIRECT.GET.ns_events") {
        asked.push(JSON.parse(body));
        if (denied) throw Object.assign(new Error("not permitted"), { cause: new PermissionViolationError("no", "publish", "x") });
        return events.length ? message(1, 0) : { headers: headers(404, "Message Not Found") };
      }
      stored.push({ subject, id: head.get("Nats-Msg-Id"), stream: head.get("Nats-Expected-Stream") });
      return { json: () => ({ seq: 1 }) };
    },
    subscribe(inbox, options) {
      ({ callback } = options);
      return { unsubscribe() {} };
    },
    publish(subject, body) {
      asked.push(JSON.parse(body));
      setImmediate(() => {
        events.forEach((_, i) => callback(null, message(i + 1, events.length - i)));
        const head = headers(204, "EOB");
        head.set("Nats-Num-Pending", "0");
        callback(null, { headers: head, data: new Uint8Array() });
      });
    },
  };
  return { nc, asked, stored };
}

const alert = (more) => ({ v: 1, kind: "alert", id: "j:@k", alert: "failed", revision: 3, ...more });

async function stores(events, { after = 61_000, ...options } = {}) {
  const { nc, asked, stored } = broker(events, options);
  const node = { name: "n", now: () => ended + fromMs(after) };
  await follow({ store: new Store(nc, "ns"), node, registry: { entries: new Map() } }, record, 3, {}, { entry });
  return { asked, stored: stored.length };
}

// The message of a slot that has ended may wait in a queue without workers. The stream has forgotten the alert's
// message ID by the time a worker receives it.
test("an alert about an outcome of long ago is stored once", async () => {
  for (const [events, stored] of [
    [[alert()], 0], [[alert({ id: "j:@other" }), alert({ revision: 2 }), alert()], 0],
    [[], 1], [[alert({ revision: 2 }), alert({ alert: "expired" }), alert({ id: "j:@other" }), { v: 2 }], 1],
  ]) {
    assert.equal((await stores(events)).stored, stored, JSON.stringify(events));
  }
});

test("an alert of long ago is looked for among a thousand of its job, from a minute before its outcome on", async () => {
  const { asked } = await stores([alert()]);
  assert.deepEqual(asked, [
    { start_time: "2026-11-21T06:59:00Z", next_by_subj: "ns.event.alert.j" }, { seq: 1, next_by_subj: "ns.event.alert.j", batch: 1000 },
  ]);
});

test("an alert about an outcome of a moment ago is stored at once, because the stream folds its copies", async () => {
  assert.deepEqual(await stores([alert()], { after: 60_000 }), { asked: [], stored: 1 });
});

test("an alert of long ago is stored although the login may not look for it", async () => {
  assert.equal((await stores([alert()], { denied: true })).stored, 1);
});

test("an alert is stored by the stream of events only", async () => {
  const { nc, stored } = broker([]);
  await follow({ store: new Store(nc, "ns"), node: { name: "n", now: () => ended }, registry: { entries: new Map() } }, record, 3, {}, { entry });
  assert.deepEqual(stored, [{ subject: "ns.event.alert.j", id: "j:@k/alert/failed/3", stream: "ns_events" }]);
});
