// The headers of a slot message (docs/protocol.md, section 7).
import { Invalid, parseSlot, slotID, timerOf } from "./names.js";
import { formatInstant, fromSeconds, optional } from "./values.js";

// Contradiction is the error of a message that names another slot than its subject or its message ID. No
// version of any program can process such a message.
export class Contradiction extends Invalid {}

// parseMessage reads headers: header(name) returns the value of a header, or "". subject is the subject on
// which the message was published; it must name the slot's job. A fired message must come from its run's timer.
export function parseMessage(header, subject) {
  const get = (name) => header(name).replace(/^\p{White_Space}+|\p{White_Space}+$/gu, "");
  const [, id, offer] = /^(.*?)(?:\/r([0-9]+))?$/s.exec(get("Nats-Msg-Id"));
  const slot = parseSlot(get("Cronce-Slot") || id);
  if (id && id !== slotID(slot)) throw new Contradiction(`slot ${slotID(slot)} has the message ID of ${id}`);
  const [, namespace, kind, of] = /^([^.]+)\.(slot|timer\.due)\.[^.]+\.([^.]+)$/.exec(subject ?? `any.slot.any.${slot.job}`) ?? [];
  if (of !== slot.job) throw new Contradiction(`slot ${slotID(slot)} was published on ${subject}`);
  if (kind === "timer.due" && (slot.at !== undefined || get("Nats-Scheduler") !== timerOf(namespace, slot))) throw new Contradiction(`slot ${slotID(slot)} was scheduled by ${get("Nats-Scheduler")}`);
  const message = {
    slot, revision: natural(get, "Cronce-Job-Revision"), node: clip(get("Cronce-Node")), offer: Number(offer ?? 0),
    caughtUp: get("Cronce-Caught-Up") !== "", chained: get("Cronce-Chained") !== "", event: get("Cronce-Event") !== "", backfill: get("Cronce-Backfill") !== "",
    refused: get("Cronce-Refused"), missed: Math.min(natural(get, "Cronce-Missed"), 2 ** 31 - 1), missedLast: optional(get("Cronce-Missed-Last")),
  };
  message.due = optional(get("Cronce-Due")) ?? (slot.at === undefined ? undefined : fromSeconds(slot.at));
  if (slot.at !== undefined && !message.chained && message.due < fromSeconds(slot.at)) message.due = fromSeconds(slot.at);
  return message;
}

// clip cuts the name of a node to the 256 bytes that a record may have.
const clip = (name) => Buffer.from(name).subarray(0, 256).toString().replace(/\uFFFD+$/, "");

function natural(get, name) {
  const text = get(name);
  if (!/^\d*$/.test(text) || BigInt(text) >= 2n ** 64n) throw new Invalid(`${name}: ${JSON.stringify(text)} is not a number`);
  return Math.min(Number(text), Number.MAX_SAFE_INTEGER); // a larger revision would be recorded as one that no program can read
}

// inBulk reports whether a message goes into the bulk lane of its queue: it may be one of thousands that come at once.
export const inBulk = (m) => !m.offer && !m.chained && Boolean(m.slot.token !== undefined || m.caughtUp || m.backfill || m.missed || m.slot.range);

// laneOf returns the lane of a message in a queue, which its subject names. bulkLane is the name of the bulk lane.
export const laneOf = (queue, m) => (inBulk(m) ? bulkLane(queue) : queue);
export const bulkLane = (queue) => `${queue}=bulk`;

// callMessages returns the messages of a slot that is called from its job's line, or that ended between two attempts.
// revision is that of its record, from which the message IDs follow. chained is true if the slot follows from others.
export function callMessages(record, revision, node, chained) {
  const slot = parseSlot(record.id), m = { slot, revision: record.job_revision ?? 0, node, due: optional(record.due), event: record.event, offer: revision + 2 };
  if (!record.shards) return [m];
  const split = (_, i) => ({ ...m, chained, caughtUp: true, slot: { ...slot, shard: i + 1, shards: record.shards } });
  return Array.from({ length: record.shards }, split);
}

// formatMessage returns the headers of a message, for a producer or a trigger.
export function formatMessage(m) {
  const id = slotID(m.slot);
  const headers = {
    "Nats-Msg-Id": m.offer ? `${id}/r${m.offer}` : id, "Cronce-Slot": id, "Cronce-Job-Revision": String(m.revision), "Cronce-Node": m.node,
  };
  if (m.due !== undefined) headers["Cronce-Due"] = formatInstant(m.due); // a run that is triggered for now has none
  if (m.chained) headers["Cronce-Chained"] = "1";
  if (m.event) headers["Cronce-Event"] = "1";
  if (m.backfill) headers["Cronce-Backfill"] = "1";
  if (m.caughtUp) headers["Cronce-Caught-Up"] = "1";
  if (m.missed) headers["Cronce-Missed"] = String(m.missed);
  if (m.missedLast !== undefined) headers["Cronce-Missed-Last"] = formatInstant(m.missedLast);
  return headers;
}
