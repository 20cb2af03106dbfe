// A job's lock: which of its slots may run, and which wait (docs/protocol.md, section 13). Pure. A slot in a lock
// is {id, at, on_time, since}, as it is stored.
import { slotID } from "./names.js";
import { formatInstant, fromSeconds, parseInstant } from "./values.js";

const maxWaiting = 100;

export const empty = (job) => ({ v: 1, job, holders: [] });

// entrant returns what enter needs to know about a delivered slot and its job.
export function entrant(d, v) {
  const { message: m } = d, { job } = v.entry;
  const begun = (v.record?.attempts ?? []).length > 0;
  const onTime = !(m.caughtUp || m.backfill || m.offer || m.slot.token !== undefined || begun);
  const at = m.slot.at === undefined ? d.published : fromSeconds(m.slot.at);
  return {
    slot: { id: slotID(m.slot), at: formatInstant(at), ...(onTime && { on_time: true }), since: formatInstant(v.now) },
    overlap: job.overlap, places: Math.max(1, job.concurrency ?? 1), reoffered: m.backfill || m.offer > 0 || Boolean(v.record),
  };
}

// enter returns {place: {kind, inWay, displaces}, next}. The place is valid once the lock next is stored. Or it
// returns {ask}: the IDs of slots about which the caller must first find out whether they have ended. ended is a
// Map with what is known: IDs to booleans.
export function enter(lock, e, ended) {
  const gone = (s) => ended.get(s.id) === true;
  lock = { ...lock, holders: lock.holders.filter((s) => !gone(s)), waiting: (lock.waiting ?? []).filter((s) => !gone(s)) };
  const { overlap, places } = e;
  const stay = [...lock.holders, ...lock.waiting].find((s) => s.id === e.slot.id);
  const slot = stay ? { ...e.slot, at: stay.at } : e.slot; // messages of one run may have different times of publication
  const newest = overlap === "latest" || overlap === "replace";
  const held = lock.holders.find((s) => s.id === slot.id);
  const answer = (place, next = lock) => ({ place, next: tidy(e.reoffered ? renewed(next, e.slot) : next) });
  if (overlap === "replace" && held?.on_time) {
    const newer = lock.waiting.find((s) => s.on_time && order(s, slot) > 0);
    if (newer && !ended.has(newer.id)) return { ask: [newer.id] };
    if (newer) return answer({ kind: "cancelled", inWay: newer.id });
  }
  if (held) return answer({ kind: "held" });
  if (newest && slot.on_time && lock.newest && parseInstant(slot.at) < parseInstant(lock.newest)) {
    const it = [...lock.holders, ...lock.waiting].find((s) => s.at === lock.newest);
    return answer({ kind: "skipped", inWay: it?.id ?? `${lock.job}:${lock.newest}` });
  }
  const passes = (s) => newest && slot.on_time && s.on_time;
  const ahead = lock.waiting.filter((s) => s.id !== slot.id && order(s, slot) < 0 && !passes(s));
  const free = places - lock.holders.length;
  const rest = lock.waiting.filter((s) => s.id !== slot.id && !passes(s));
  const remembered = { ...lock, waiting: rest };
  if (newest && slot.on_time && (!lock.newest || parseInstant(slot.at) > parseInstant(lock.newest))) remembered.newest = slot.at;
  if (ahead.length < free) return answer({ kind: "held" }, { ...remembered, holders: [...lock.holders, slot] });
  const ask = (free > 0 ? ahead : lock.holders).map((s) => s.id).filter((id) => !ended.has(id));
  if (ask.length) return { ask };
  // Only an earlier slot can cause a slot to be skipped.
  const older = overlap === "skip" && slot.on_time && [...lock.holders, ...ahead].find((s) => order(s, slot) <= 0);
  if (older && !ended.has(older.id)) return { ask: [older.id] };
  if (older) return answer({ kind: "skipped", inWay: older.id });
  const place = { kind: "waits" };
  if (overlap === "replace" && slot.on_time && free <= 0) {
    const oldest = lock.holders.filter((s) => s.on_time && order(s, slot) < 0).sort(order)[0];
    if (oldest) place.displaces = oldest.id;
  }
  if (lock.waiting.some((s) => s.id === slot.id)) return answer(place);
  const waiting = [...rest, slot].sort(order).slice(0, maxWaiting);
  if (!waiting.includes(slot)) return answer({ kind: "crowded" });
  return answer(place, { ...remembered, waiting });
}

// renewed returns the lock with a new stay of the slot, if the slot is in the lock. The slot may have been
// reopened, so a worker that found the earlier stay ended must not remove this one.
function renewed(lock, { id, since }) {
  const renew = (s) => (s.id === id ? { ...s, since } : s);
  return { ...lock, holders: lock.holders.map(renew), waiting: lock.waiting.map(renew) };
}

// leave removes a slot from the lock, and gives free places to waiting slots, whose IDs it returns as woken.
export function leave(lock, id, places) {
  const stay = (s) => s.id !== id;
  const holders = lock.holders.filter(stay), waiting = (lock.waiting ?? []).filter(stay), woken = [];
  while (holders.length < places && waiting.length) {
    woken.push(waiting[0].id);
    holders.push(waiting.shift());
  }
  return { next: tidy({ ...lock, holders, waiting }), woken };
}

const tidy = ({ waiting, ...lock }) => (waiting?.length ? { ...lock, waiting } : lock);

function order(a, b) {
  const x = parseInstant(a.at), y = parseInstant(b.at);
  return x !== y ? (x < y ? -1 : 1) : a.id < b.id ? -1 : a.id > b.id ? 1 : 0;
}
