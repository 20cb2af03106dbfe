import test from "node:test";
import assert from "node:assert/strict";
import { PermissionViolationError, TimeoutError, headers } from "@nats-io/transport-node";
import { parseEntry } from "../lib/definition.js";
import { follow } from "../lib/follow.js";
import { Store } from "../lib/store.js";
import { fromMs, parseInstant } from "../lib/values.js";

const ended = parseInstant("2026-11-21T07:00:00Z");
const entry = parseEntry(JSON.stringify({ v: 1, job: { name: "j", on_failure: { nats: { subject: "alerts" } }, plan: { schedule: "none" } } }), 1, ended);
const record = { v: 1, id: "j:@k", state: "failed", attempt: 1, finished: "2026-11-21T07:00:00Z" };

// broker stores events with these message IDs, and answers direct gets of their stream. asked has the queries, as objects. lost is how many of
// the first answers to a search for the first event are lost. silent brokers send only the first few messages of a page,
// and broken ones an error.
function broker(events, { denied = false, lost = 0, silent, broken = false } = {}) {
  const asked = [], stored = [];
  let callback;
  const message = (seq, pending) => {
    const head = headers();
    head.set("Nats-Sequence", String(seq));
    head.set("Nats-Num-Pending", String(pending));
    head.set("Nats-Msg-Id", events[seq - 1]);
    return { headers: head, data: new Uint8Array() };
  };
  const nc = {
    options: { inboxPrefix: "_INBOX" },
    features: { get: () => ({ ok: true }) },
    async request(subject, body, { headers: head }) {
      if (subject === "$JS.API.DIRECT.GET.ns_events") {
        asked.push(JSON.parse(body));
        if (denied) throw Object.assign(new Error("not permitted"), { cause: new PermissionViolationError("no", "publish", "x") });
        if (lost-- > 0) return new Promise((_, fail) => setImmediate(fail, new TimeoutError()));
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
        if (broken) return callback(null, { headers: headers(500, "Server Error"), data: new Uint8Array() });
        events.slice(0, silent).forEach((_, i) => callback(null, message(i + 1, events.length - i)));
        if (silent !== undefined) return;
        const head = headers(204, "EOB");
        head.set("Nats-Num-Pending", "0");
        callback(null, { headers: head, data: new Uint8Array() });
      });
    },
  };
  return { nc, asked, stored };
}

const alert = ({ id = "j:@k", state = "failed", revision = 3 } = {}) => `${id}/alert/${state}/${revision}`;

async function stores(events, { after = 61_000, lease = 60_000, ...options } = {}) {
  const { nc, asked, stored } = broker(events, options);
  const node = { name: "n", lease, now: () => ended + fromMs(after) };
  await follow({ store: new Store(nc, "ns"), node, registry: { entries: new Map() } }, record, 3, {}, { entry });
  return { asked, stored: stored.length };
}

// The message of a slot that has ended may wait in a queue without workers. The stream has forgotten the alert's
// message ID by the time a worker receives it.
test("an alert about an outcome of long ago is stored once", async () => {
  for (const [events, stored] of [
    [[alert()], 0], [[alert({ id: "j:@other" }), alert({ revision: 2 }), alert()], 0],
    [[], 1], [[alert({ revision: 2 }), alert({ state: "expired" }), alert({ id: "j:@other" }), ""], 1],
  ]) {
    assert.equal((await stores(events)).stored, stored, JSON.stringify(events));
  }
});

test("an alert of long ago is looked for in pages of a hundred of its job, from a minute before its outcome on", async () => {
  const { asked } = await stores([alert()]);
  assert.deepEqual(asked, [
    { start_time: "2026-11-21T06:59:00Z", next_by_subj: "ns.event.alert.j" }, { seq: 1, next_by_subj: "ns.event.alert.j", batch: 100 },
  ]);
});

test("an alert about an outcome of a moment ago is stored at once, because the stream folds its copies", async () => {
  assert.deepEqual(await stores([alert()], { after: 60_000 }), { asked: [], stored: 1 });
});

test("an alert of long ago is stored although the login may not look for it", async () => {
  assert.equal((await stores([alert()], { denied: true })).stored, 1);
});

// Each delivery of the slot would look for its alert again, and none would publish it.
test("an alert of long ago is stored although the earlier ones cannot be read in time", async () => {
  for (const options of [{ silent: 0 }, { silent: 1 }, { lost: Infinity }]) {
    assert.equal((await stores([alert({ revision: 2 }), alert()], { lease: 40, ...options })).stored, 1, JSON.stringify(options));
  }
});

test("an alert of long ago is looked for again if an answer is lost, and not stored if the events cannot be read", async () => {
  assert.equal((await stores([alert()], { lost: 2 })).stored, 0);
  await assert.rejects(stores([alert()], { broken: true }), /Server Error/);
});

test("an alert is stored by the stream of events only", async () => {
  const { nc, stored } = broker([]);
  await follow({ store: new Store(nc, "ns"), node: { name: "n", now: () => ended }, registry: { entries: new Map() } }, record, 3, {}, { entry });
  assert.deepEqual(stored, [{ subject: "ns.event.alert.j", id: "j:@k/alert/failed/3", stream: "ns_events" }]);
});

// The stream folds by message ID on all subjects, and the ID can be guessed by a login that may write other events.
test("a duplicate is believed only if what is stored is that alert", async () => {
  for (const [has, id, again] of [
    ["ns.event.alert.j", alert(), 0], ["ns.event.alert.j", `${alert()}/again/x`, 0], ["ns.event.ordered.evil", alert(), 1], ["ns.event.alert.j", alert({ revision: 2 }), 1],
  ]) {
    const ids = [];
    const nc = {
      async request(subject, body, { headers: head }) {
        if (subject === "$JS.API.DIRECT.GET.ns_events") {
          assert.deepEqual(JSON.parse(body), { seq: 7 });
          const found = headers();
          for (const [name, text] of [["Nats-Sequence", "7"], ["Nats-Subject", has], ["Nats-Msg-Id", id]]) found.set(name, text);
          return { headers: found };
        }
        ids.push(head.get("Nats-Msg-Id"));
        return { json: () => (ids.length === 1 ? { seq: 7, duplicate: true } : { seq: 8 }) };
      },
    };
    await follow({ store: new Store(nc, "ns"), node: { name: "n", now: () => ended }, registry: { entries: new Map() } }, record, 3, {}, { entry });
    assert.deepEqual(ids.map((i) => i.replace(/again\/.{20,}$/, "again/*")), [alert(), `${alert()}/again/*`].slice(0, 1 + again), `${has} ${id}`);
  }
});
