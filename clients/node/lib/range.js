// What is left of a range of missed slots (docs/protocol.md, section 11).
import { Invalid, slotKey } from "./names.js";
import { fromSeconds, optional } from "./values.js";

const second = 1_000_000_000n;

// restOf returns the message of a range from its first slot that has neither a record of its own nor one of another
// range. It returns undefined if there is no such slot. unread: a record of the range itself is not looked for.
export async function restOf(store, registry, message, unread) {
  const { slot: { job }, missedLast } = message;
  for (let m = message; ; unread = false) {
    let until = fromSeconds(m.slot.at);
    const own = await store.readAny("ledger", slotKey({ job, at: m.slot.at }));
    if (!own.value && !own.unreadable) {
      if (unread) return m;
      const { value } = await store.read("ledger", slotKey(m.slot));
      const last = optional(value?.last);
      if (!value || last === undefined || last >= missedLast) return m;
      if (last > until) until = last;
    }
    const entry = await registry.entry(job, m.revision).catch((err) => {
      if (!(err instanceof Invalid)) throw err;
    });
    if (!entry) return m; // the slots cannot be computed
    const left = slotsBetween(entry, until, missedLast);
    if (left.length === 0) return undefined;
    m = { ...m, slot: { ...m.slot, at: left[0] }, missed: Math.min(m.missed, left.length) };
  }
}

// slotsBetween returns the slots of all plans of an entry after one instant, up to and including another, in seconds.
function slotsBetween(entry, after, until) {
  const slots = [];
  for (const { schedule, from, to } of entry.plans) {
    if (!schedule) continue;
    const begin = from > after ? from : after, end = to !== undefined && to < until ? to : until;
    for (let at = schedule.next(Number(begin / second)); at !== undefined && fromSeconds(at) <= end; at = schedule.next(at)) {
      if (fromSeconds(at) > begin) slots.push(at);
    }
  }
  return slots;
}
