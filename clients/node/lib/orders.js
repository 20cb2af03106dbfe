// Triggers, and waiting for outcomes (docs/protocol.md, sections 7 and 10).
import { randomUUID } from "node:crypto";
import { PermissionViolationError, headers as newHeaders } from "@nats-io/transport-node";
import { isFinal } from "./claim.js";
import { bulkLane, formatMessage } from "./message.js";
import { Invalid, parseSlot, slotID, slotKey, timerOf } from "./names.js";
import { Store, abortAfter, backOff, pause, repeat } from "./store.js";
import { rawMember } from "./values.js";

const mostPayload = 262_144;
const latestTimer = Date.UTC(2200, 0); // the server counts nanoseconds since 1970 in 64 bits

// trigger publishes one run of a job, and returns its slot ID. All triggers with the same job and key, from
// any program, are one run.
export async function trigger(nc, job, { key, payload, at, namespace = "cronce", node = "node-client", timeout = 10_000, ...unknown } = {}) {
  for (const option of Object.keys(unknown)) throw new TypeError(`trigger ${job}: there is no option ${option}`);
  const store = new Store(nc, namespace, { direct: true }), slot = parseSlot(`${job}:@${key ?? randomUUID()}`), id = slotID(slot);
  const body = payload === undefined ? undefined : JSON.stringify(payload);
  if (payload !== undefined && body === undefined) throw new TypeError(`trigger ${id}: the payload is not JSON`);
  if (Buffer.byteLength(body ?? "") > mostPayload) throw new RangeError(`trigger ${id}: the payload has more than ${mostPayload} bytes`);
  if (at !== undefined && !Number.isFinite(at?.getTime?.())) throw new TypeError(`trigger ${id}: at is not a valid Date`);
  if (at >= latestTimer) throw new RangeError(`trigger ${id}: at ${at.toISOString()}: want a time before 2200`);
  const entry = await definition(store, job);
  if (entry.value.job.plan?.shards > 1) throw new Error(`trigger ${id}: the job splits its slots, which this client does not support: use "cronce job trigger"`);
  // A run for a time that has passed has no due time: it was not late, nor past its deadline, before it was ordered.
  const later = at !== undefined && at > (await timeOf(store, "slots") || Date.now());
  if (key !== undefined && await triggered(store, slot, entry, later)) return id;
  const queue = entry.value.job.queue ?? "default";
  const { "Nats-Msg-Id": msgID, ...head } = formatMessage({ slot, revision: entry.revision, node, due: later ? BigInt(at.getTime()) * 1_000_000n : undefined });
  const data = body ?? entry.payload, signal = abortAfter(timeout);
  if (later) await setTimer(store, timerOf(namespace, slot), { id, queue, job, at }, head, data, signal).catch((err) => {
    if (!err.denied) throw err;
    return askLater(store, slot, `{"key":${JSON.stringify(slot.token)},"at":"${at.toISOString()}","by":${JSON.stringify(node)}${body === undefined ? "" : `,"payload":${body}`}}`, signal);
  });
  else await order(store, id, `${namespace}.slot.${bulkLane(queue)}.${job}`, { ...head, "Nats-Msg-Id": msgID, "Nats-Expected-Stream": `${namespace}_slots` }, data, signal);
  return id;
}

// triggered reports whether the run exists. It looks for a timer, then for a message that waits for a
// worker, and then for a record: a run moves through them in this order. A run keeps the number of shards
// with which it was ordered, and its timers have this number in their names.
async function triggered(store, slot, entry, later) {
  const { namespace } = store, { job } = slot;
  const split = new Set((entry.value.past ?? []).map((p) => p.plan?.shards).filter((n) => n > 1));
  for (const shards of [undefined, ...split]) {
    if (await store.has(`${namespace}_timers`, timerOf(namespace, shards ? { ...slot, shard: 1, shards } : slot))) return true;
  }
  return (await waits(store, "timers", `${namespace}.timer.due.*.${job}`, slotID(slot), true)) ||
    (await waits(store, "slots", `${namespace}.slot.*.${job}`, slotID(slot), later || split.size > 0)) || Boolean((await store.read("ledger", slotKey(slot))).value);
}

// waits reports whether one of the oldest messages on a subject is that of the run, or of a shard of it.
// Unless all is true, it reads them only if the oldest one is at least 105 s old: within the duplicate
// window, which is at least two minutes long, the stream drops a second message of the run. A login that may
// not read the stream finds no message, and a server without timers has none. If there is no answer, waits
// throws.
async function waits(store, name, subject, id, all) {
  const stream = `${store.namespace}_${name}`, ask = { seq: 1, next_by_subj: subject };
  const oldest = await store.first(stream, ask).catch((err) => {
    if (name === "timers" && err.isNoResponders?.()) return undefined;
    throw err;
  });
  const stored = Date.parse(oldest?.headers?.get("Nats-Time-Stamp"));
  if (Number.isNaN(stored) || (!all && (await timeOf(store, name)) - stored < 105_000)) return false;
  return store.finds(stream, ask, 10_000, (m) => m.headers.get("Cronce-Slot").replace(/#[0-9]+of[0-9]+$/, "") === id);
}

// infoOf returns what the server says about a stream, or undefined if the login may not ask.
async function infoOf(store, name) {
  const answer = await store.nc.request(`$JS.API.STREAM.INFO.${store.namespace}_${name}`, "", { timeout: 2000 }).catch((err) => {
    if (err.cause instanceof PermissionViolationError) return undefined;
    throw err;
  });
  return answer?.json();
}

// timeOf returns the time of the server's clock in ms, or NaN if the login may not ask for it.
const timeOf = async (store, name) => Date.parse((await infoOf(store, name))?.ts);

async function definition(store, job) {
  const found = await store.read("jobs", job);
  if (!found.value) throw new Error(`trigger ${job}: there is no such job in namespace ${store.namespace}`);
  return { ...found, payload: rawMember(rawMember(found.text, "job") ?? "{}", "payload") ?? "" };
}

// order repeats the same message until it is known whether the stream has it. exists has the error codes that say so
// too, and busy those of a copy that may be stored if it is sent again.
async function order(store, id, subject, headers, body, signal, { exists = [], busy = [10158] } = {}) {
  const head = newHeaders();
  for (const [name, text] of Object.entries(headers)) head.set(name, text);
  let open = 0, last = "not answered"; // open counts the copies that may have been stored, or may still be
  const answer = await repeat(async () => {
    open++;
    const answer = await store.publish(subject, body, head);
    last = answer.description;
    if (answer.seq || exists.includes(answer.code)) return answer;
    if (answer.unknown && !answer.denied) return undefined;
    open--;
    return open === 0 && !busy.includes(answer.code) ? answer : undefined;
  }, backOff, signal);
  if (answer?.seq || exists.includes(answer?.code)) return;
  if (answer) throw Object.assign(new Error(`trigger ${id}: ${answer.description}${answer.code === 10188 ? ": timers need nats-server 2.12 or newer" : ""}`), { denied: answer.denied });
  throw new Error(`trigger ${id}: ${last}; whether it runs is not known: trigger it again with the same key`);
}

// setTimer stores a message that the server will publish at the time of the run. A conflict means that the
// timer exists.
async function setTimer(store, subject, { id, queue, job, at }, head, body, signal) {
  const { namespace } = store;
  if ((await infoOf(store, "timers"))?.error?.err_code === 10059) throw new Error(`trigger ${id}: namespace ${namespace} has no stream of timers: "cronce setup" creates it on nats-server 2.12 or newer`);
  const headers = {
    ...head, "Nats-Schedule": `@at ${at.toISOString()}`, "Nats-Schedule-Target": `${namespace}.timer.due.${queue}.${job}`,
    "Nats-Expected-Stream": `${namespace}_timers`, "Nats-Expected-Last-Subject-Sequence": "0", "Cronce-Nonce": randomUUID(),
  };
  await order(store, id, subject, headers, body, signal, { exists: [10071], busy: [10164] });
}

// askLater has a node order the run, because this login may not set timers: a timer chooses in its headers what the
// server does. The node does all that trigger does.
async function askLater(store, slot, request, signal) {
  const { nc, namespace } = store, id = slotID(slot), reply = `${namespace}.reply.later.${slot.job}.${randomUUID()}`;
  let found, last = "no node answers whose login may set timers";
  const sub = nc.subscribe(reply, { callback: (err, m) => {
    if (err) found = { failed: err.message };
    else if (m.headers?.code === 503) return;
    else if (m.headers?.get("Nats-Service-Error-Code") === "504") last = m.headers.get("Nats-Service-Error");
    else found = { failed: m.headers?.get("Nats-Service-Error") };
  } });
  try {
    const answer = await repeat(async () => {
      if (!found) nc.publish(`${namespace}.api.later.${slot.job}`, request, { reply });
      await pause(50, signal);
      return found;
    }, backOff, signal);
    if (!answer) throw new Error(`trigger ${id}: ${last}; whether it runs is not known: trigger it again with the same key`);
    if (answer.failed) throw new Error(`trigger ${id}: ${answer.failed}`);
  } finally {
    sub.unsubscribe();
  }
}

// wait returns the outcome of a slot when there is one. It reads the record at its stream's leader, often at
// first, and then every second. It rejects if the server refuses the read, or the connection is closed for good.
export async function wait(nc, id, { namespace = "cronce", signal } = {}) {
  const store = new Store(nc, namespace, { direct: true }), key = slotKey(parseSlot(id));
  for (let n = 0; ; n++) {
    signal?.throwIfAborted();
    const { value, revision } = await store.read("ledger", key).catch((err) => {
      if (err instanceof Invalid || err.cause instanceof PermissionViolationError) throw err; // a newer program wrote it, or it may not be read
      if (err.code === 10059) throw new Error(`namespace ${namespace}: it has no ledger`, { cause: err });
      if (err.refused || nc.isClosed()) throw err;
      return {}; // not answered
    });
    if (value && isFinal(value)) return outcome(value, revision);
    await pause(Math.min(50 * 1.5 ** n, 1000), signal);
  }
}

function outcome({ id, state, attempt, node, error, output, result, finished }, revision) {
  return { id, state, attempt, node, error, output, result, finished: new Date(finished), revision };
}
