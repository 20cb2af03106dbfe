// The locks on the broker: lock.js says what, this writes it (docs/protocol.md, section
// 12).
import { guarded } from "./definition.js";
import { empty, enter, entrant, leave } from "./lock.js";
import { isFinal } from "./claim.js";
import { parseSlot, slotKey } from "./names.js";
import { parseInstant, toMs } from "./values.js";

export class Locks {
  // end(record, revision, by) has a slot that has not ended end for a newer one.
  constructor(store, node, end) {
    Object.assign(this, { store, node, end });
  }

  // enter asks for a place until the answer is stored; undefined: trust has ended. since
  // is when the stay began with which this delivery entered the slot, if the slot's record has not
  // changed since; the place comes with that of the stay that it has now.
  async enter(d, v, since) {
    const e = entrant(d, v), key = `lock.${v.entry.job.name}`;
    e.reoffered &&= since === undefined; // it has had no outcome since it entered
    const ended = new Map();
    while (this.node.trusted()) {
      const { value, revision } = await this.store.read("state", key);
      const lock = value ?? empty(v.entry.job.name);
      const { ask, place, next } = enter(lock, e, ended);
      if (ask) {
        for (const id of ask) ended.set(id, await this.hasEnded(id, lock, v.horizon));
        continue;
      }
      if (!same(lock, next)) {
        const wrote = await this.store.write("state", key, next, revision, { node: this.node.name, signal: this.node.signal });
        if (wrote.unknown) return undefined;
        if (wrote.lost) { ended.clear(); continue; }
      }
      if (place.displaces) await this.replace(place.displaces, e.slot.id);
      return { ...place, since: stayOf(next, e.slot.id)?.since };
    }
    return undefined;
  }

  async hasEnded(id, lock, horizon) {
    const { value } = await this.store.read("ledger", slotKey(parseSlot(id)));
    if (value) return isFinal(value);
    return toMs(this.node.now() - parseInstant(stayOf(lock, id).at)) > horizon + this.node.lease;
  }

  // replace has a holder ended. A holder that no worker has claimed yet is left for the next
  // time that the newer slot asks for its place.
  async replace(id, by) {
    const { value, revision } = await this.store.read("ledger", slotKey(parseSlot(id)));
    if (value && !isFinal(value)) await this.end(value, revision, by);
  }

  // leave takes a slot out whose outcome is written, if its stay is still the one that
  // began then: it may have been reopened meanwhile. A worker that does not get to it leaves a
  // holder that has ended.
  async leave(id, since, entry, signal) {
    if (since === undefined || entry && !guarded(entry.job)) return;
    const key = `lock.${id.split(":")[0]}`;
    while (!signal.aborted) {
      const { value, revision } = await this.store.read("state", key);
      if (!value || stayOf(value, id)?.since !== since) return;
      const { next, woken } = leave(value, id, Math.max(1, entry?.job.concurrency ?? 1));
      const wrote = await this.store.write("state", key, next, revision, { node: this.node.name, signal });
      if (wrote.lost) continue;
      if (wrote.won) for (const one of woken) this.store.nc.publish(`${this.store.namespace}.${key}`, one);
      return;
    }
  }
}

const stayOf = (lock, id) => [...lock.holders, ...(lock.waiting ?? [])].find((s) => s.id === id);

// A stay that was renewed is a difference too.
const names = (list) => (list ?? []).map((s) => `${s.id} ${s.since}`).join("\n");
const same = (a, b) => names(a.holders) === names(b.holders) && names(a.waiting) === names(b.waiting) && a.newest === b.newest;
