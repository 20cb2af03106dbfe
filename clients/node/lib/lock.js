// A job's lock: which of its slots may run, and whether others stand in its line (docs/protocol.md, section 13). Pure.
// A slot in a lock is {id, at, on_time, since, node}, as it is stored. An entry of the line is {id, at, on_time, sequence}.
import { isOnTime, waitedTooLong } from "./claim.js";
import { slotID } from "./names.js";
import { formatInstant, fromSeconds, parseInstant } from "./values.js";

export const empty = (job) => ({ v: 1, job, holders: [] });

// entrant returns what enter needs to know about a delivered slot and its job.
export function entrant(d, v) {
  const { message: m } = d, { record, entry: { job } } = v;
  const published = record?.published ? parseInstant(record.published) : d.published;
  const at = m.slot.at === undefined ? published : fromSeconds(m.slot.at);
  return {
    slot: { id: slotID(m.slot), at: formatInstant(at), ...(isOnTime(d, v) && { on_time: true }), since: formatInstant(v.now), node: v.self },
    overlap: job.overlap, places: Math.max(1, job.concurrency ?? 1), fresh: !record || record.state === "waiting",
    author: record && record.state !== "waiting" ? record.node : undefined,
  };
}

// enter returns {kind, inWay, displaces, next}: the answer counts once the lock next is stored. The kind "waits" means that
// the slot has to stand in the line.
export function enter(lock, e) {
  const { slot, overlap, places } = e;
  const held = lock.holders.find((h) => h.id === slot.id);
  if (held) return stay(lock, e, held);
  if (places === 0 && lock.holders.length === 0 && !lock.waiting) return { kind: "held", next: lock }; // a deleted job
  const free = Math.max(1, places) - lock.holders.length, superseding = slot.on_time && supersedes(overlap);
  if (superseding && isBefore(slot.at, lock.newest)) return { kind: "skipped", inWay: newestOf(lock), next: lock };
  const accepted = superseding && (!lock.newest || isBefore(lock.newest, slot.at)) ? { ...lock, newest: slot.at } : lock;
  if (free > 0 && !lock.waiting) return { kind: "held", next: { ...accepted, holders: [...lock.holders, slot] } };
  // A slot is skipped only because of an older one.
  const older = overlap === "skip" && slot.on_time && lock.holders.find((h) => order(h, slot) <= 0);
  if (older) return { kind: "skipped", inWay: older.id, next: lock };
  const oldest = overlap === "replace" && slot.on_time && free <= 0 && lock.holders.filter((h) => h.on_time && order(h, slot) < 0).sort(order)[0];
  return { kind: "waits", ...(oldest && { displaces: oldest.id }), next: accepted };
}

// stay decides about a slot that holds a place. If it has begun before, and does not go on with the node that claims it, it
// begins a new stay with that node. That changes the lock, so a worker that found the slot ended before it was reopened
// cannot take it out. author is the writer of its record.
function stay(lock, { slot, overlap, fresh, author }, held) {
  if (overlap === "replace" && held.on_time && isBefore(held.at, lock.newest)) return { kind: "cancelled", inWay: newestOf(lock), next: lock };
  if (held.node === slot.node ? fresh || author === slot.node : fresh && !held.node) return { kind: "held", next: lock };
  return { kind: "held", next: { ...lock, holders: lock.holders.map((h) => (h === held ? { ...h, node: slot.node, since: slot.since } : h)) } };
}

// leave takes a slot out of the lock that has its outcome. Another node than that of its place does not take it out.
export const leave = (lock, id, node) => ({ ...lock, holders: lock.holders.filter((h) => h.id !== id || (h.node && h.node !== node)) });

// call gives a place to the slot of an entry.
export const call = (lock, { id, at, on_time }, now) => ({ ...lock, holders: [...lock.holders, { id, at, ...(on_time && { on_time }), since: formatInstant(now) }] });

// stood returns the lock after an entry was put into the line.
export const stood = (lock, sequence) => tidy({ ...lock, waiting: true, line: Math.min(lock.line ?? 0, sequence) });

// tidy leaves out what is not stored.
export const tidy = ({ waiting, line, ...lock }) => ({ ...lock, ...(waiting && { waiting }), ...(line && { line }) });

// displaced reports whether a newer slot has replaced the slot of an entry. isOver reports whether that slot has to end
// instead of getting a place. record is its record.
export const displaced = (lock, e, overlap) => Boolean(supersedes(overlap) && e.on_time && isBefore(e.at, lock.newest));
export const isOver = (lock, e, record, overlap, v) => displaced(lock, e, overlap) || waitedTooLong(record, v);

// supersedes reports whether a newer slot that is on time replaces the older ones that wait.
export const supersedes = (overlap) => overlap === "latest" || overlap === "replace";

const newestOf = (lock) => lock.holders.find((h) => h.at === lock.newest)?.id ?? `${lock.job}:${lock.newest}`;

const isBefore = (at, newest) => newest !== undefined && parseInstant(at) < parseInstant(newest);

// order compares the turns of two slots or entries.
export function order(a, b) {
  const x = parseInstant(a.at), y = parseInstant(b.at);
  return x !== y ? (x < y ? -1 : 1) : a.id < b.id ? -1 : a.id > b.id ? 1 : 0;
}
