// What follows from an outcome (docs/protocol.md, section 12): the slots of the jobs that come after, and
// alerts. The worker publishes them before it acks the slot's message.
import { randomUUID } from "node:crypto";
import { TimeoutError, headers as newHeaders } from "@nats-io/transport-node";
import { fenceOf } from "./claim.js";
import { planAt } from "./definition.js";
import { formatMessage } from "./message.js";
import { parseSlot, slotID, slotKey } from "./names.js";
import { formatInstant, fromMs, optional, textOf, toMs } from "./values.js";
import { backOff, decodeOf, pause, repeat } from "./store.js";

const giveUp = 20_000; // ms without an acknowledgement until stored throws; the next delivery publishes again

// follow publishes what follows from the record that is stored at revision. message is that of the slot. entry
// is its job's definition, or undefined if the job was deleted, or if it is not known. follow throws if the broker does
// not acknowledge all of it in time.
export async function follow({ store, node, registry }, record, revision, message, { entry, deleted }) {
  const alert = deleted ? undefined : alertOf(record, revision, entry, node.name, store.namespace);
  if (alert && !(await hasAlert(store, node, alert))) await storeAlert(store, alert);
  if (record.state !== "succeeded") return;
  const slot = parseSlot(record.id);
  for (const next of registry.entries.values()) {
    const after = next.job.plan.after ?? [];
    if (!after.includes(slot.job)) continue;
    const others = after.filter((job) => job !== slot.job).map((job) => ({ ...slot, job }));
    const before = [record, ...(others.length ? await beside(store, slot, revision, others) : [])];
    for (const m of chain(next, before, message, node.name)) {
      await stored(store, `${store.namespace}.slot.${m.queue}.${m.job}`, { ...m.headers, "Nats-Expected-Stream": `${store.namespace}_slots` }, m.body);
    }
  }
}

const failed = new Set(["failed", "expired"]);

// alertOf returns the alert event for an outcome, if the job has a target for it. The same outcome always gives
// the same message ID. Other nodes deliver the alert. Pure.
export function alertOf(record, revision, entry, node, namespace) {
  const state = record.state;
  const wanted = failed.has(state) ? "on_failure" : state === "missed" ? "on_missed" : undefined;
  if (!wanted || (entry && !entry.job[wanted])) return undefined;
  const job = record.id.split(":")[0];
  const body = { v: 1, kind: "alert", time: record.finished, node, id: record.id, job, fence: fenceOf(record, revision), alert: state, revision };
  for (const name of ["attempt", "error", "job_revision", "count", "last"]) if (record[name]) body[name] = record[name];
  if (record.output) body.output = Buffer.from(record.output).subarray(-3072).toString().replace(/^\uFFFD+/, "");
  const headers = { "Nats-Msg-Id": `${record.id}/alert/${state}/${revision}` };
  return { subject: `${namespace}.event.alert.${job}`, headers, body: JSON.stringify(body) };
}

// storeAlert publishes an alert. The stream drops a message whose ID it has seen, whatever the subject of the first one was,
// and a login that may write other events can guess the ID. So a duplicate is believed only if what is stored is that
// alert. Otherwise the alert is published under an ID that cannot be guessed.
async function storeAlert(store, { subject, headers, body }) {
  const id = headers["Nats-Msg-Id"], all = { ...headers, "Nats-Expected-Stream": `${store.namespace}_events` };
  const { seq, duplicate } = await stored(store, subject, all, body);
  if (duplicate && !(await isAlert(store, seq, subject, id))) await stored(store, subject, { ...all, "Nats-Msg-Id": `${id}/again/${randomUUID()}` }, body);
}

const hasID = (m, id) => m.headers.get("Nats-Msg-Id") === id || m.headers.get("Nats-Msg-Id").startsWith(`${id}/again/`);

// isAlert reports whether the message at a sequence of the events is an alert. A replica may have to catch up first.
async function isAlert(store, seq, subject, id) {
  for (let n = 0; n < 5; n++) {
    const m = await store.first(`${store.namespace}_events`, { seq }).catch(() => undefined);
    if (m?.headers?.get("Nats-Sequence") === String(seq)) return m.headers.get("Nats-Subject") === subject && hasID(m, id);
    await pause(50 * 2 ** n);
  }
  return false;
}

const fold = 60_000; // ms for which the stream of events certainly folds two alerts with one message ID
const mostAlerts = 1000; // a job with many alerts must not keep the message of its slot waiting
const alertsAtOnce = 100; // alerts that hasAlert asks for at once: a heartbeat waits behind them on a slow link

// hasAlert reports whether the broker has stored an alert about the same outcome. The message of an ended slot may be
// delivered again long after the outcome, for example from a queue that had no worker. If a login may not read the
// events, or if they are not read in a quarter of the lease, an alert may be stored twice: that is better than never.
async function hasAlert(store, node, { subject, headers, body }) {
  const ended = optional(JSON.parse(body).time);
  if (ended === undefined || toMs(node.now() - ended) <= fold) return false;
  const over = new AbortController(), late = pause(node.lease / 4, over.signal).then(() => false);
  try {
    return await Promise.race([findAlert(store, subject, headers["Nats-Msg-Id"], ended, over.signal), late]);
  } finally {
    over.abort();
  }
}

// findAlert reports whether an alert with this message ID is stored, until the signal aborts. An alert is stored soon
// after its outcome, so findAlert reads the first alerts of the job from a little before that on. If an answer is lost,
// it begins again.
async function findAlert(store, subject, id, ended, signal) {
  const stream = `${store.namespace}_events`, ask = { start_time: formatInstant(ended - fromMs(60_000)), next_by_subj: subject };
  const matches = (m) => signal.aborted || hasID(m, id); // if aborted, no further page is read
  while (!signal.aborted) {
    try {
      const first = await store.first(stream, ask), seq = Number(first?.headers?.get("Nats-Sequence"));
      return seq > 0 && (await store.finds(stream, { seq, next_by_subj: subject, batch: alertsAtOnce }, mostAlerts, matches));
    } catch (err) {
      if (!(err instanceof TimeoutError || err.cause instanceof TimeoutError)) throw err;
    }
  }
  return false;
}

// chain returns the messages for one job, from the records of the slots of the jobs that it comes after: none
// if some records are missing or have not succeeded. Pure.
export function chain(entry, before, message, node) {
  const { after, shards } = entry.job.plan;
  if (before.length < after.length || before.some((r) => r.state !== "succeeded")) return [];
  const due = before.map((r) => optional(r.finished) ?? 0n).reduce((a, b) => (a > b ? a : b));
  if (!planAt(entry, due)?.plan.after?.length) return []; // the job had a schedule then, or did not exist
  const { shard, shards: _, ...slot } = { ...message.slot, job: entry.job.name };
  const common = { revision: entry.revision, node, due, chained: true, caughtUp: message.caughtUp || message.offer > 0, backfill: message.backfill };
  const slots = entry.paused || !shards ? [slot] : Array.from({ length: shards }, (_, i) => ({ ...slot, shard: i + 1, shards }));
  return slots.map((each) => ({
    queue: entry.job.queue, job: entry.job.name, body: entry.payload,
    headers: formatMessage({ ...common, slot: each, ...(entry.paused && { missed: 1 }) }),
  }));
}

// beside reads the records of other slots from a replica that has the outcome of this slot. So, if two slots
// succeed at the same time, at least one of their workers finds both outcomes.
async function beside(store, own, revision, others) {
  const bucket = `${store.namespace}_ledger`, subject = (slot) => `$KV.${bucket}.${slotKey(slot)}`;
  for (let n = 0; n < 20; n++) {
    if (n > 0) await pause(100);
    const found = [];
    let seen = false;
    await store.batch(`KV_${bucket}`, { multi_last: [own, ...others].map(subject) }, (m) => {
      if (m.subject === subject(own)) seen = m.seq >= revision;
      else if (m.data.length) found.push(decodeOf("ledger", m.subject.slice(`$KV.${bucket}.`.length), textOf(m)));
    });
    if (seen) return found;
  }
  throw new Error(`what follows from ${slotID(own)}: no server has its outcome yet`);
}

// stored publishes a message, and returns the acknowledgement of a stream when there is one.
export async function stored(store, subject, headers, body) {
  const head = newHeaders();
  for (const [name, text] of Object.entries(headers)) head.set(name, text);
  const ack = await repeat(async () => {
    const answer = await store.publish(subject, body, head);
    return answer.seq ? answer : undefined;
  }, backOff, AbortSignal.timeout(giveUp));
  if (!ack) throw new Error(`publish ${headers["Nats-Msg-Id"]}: not acknowledged`);
  return ack;
}
