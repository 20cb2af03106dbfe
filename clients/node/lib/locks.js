// The locks on the broker (docs/protocol.md, section 13). lock.js computes their values; this file reads and
// writes them.
import { guarded } from "./definition.js";
import { empty, enter, entrant, leave } from "./lock.js";
import { isFinal } from "./claim.js";
import { parseSlot, slotKey } from "./names.js";
import { parseInstant, toMs } from "./values.js";

export class Locks {
  // end(record, revision, by) ends a slot without an outcome, because the newer slot by replaces it.
  constructor(store, node, end) {
    Object.assign(this, { store, node, end });
  }

  // enter asks for a place in the lock until the answer is stored. It returns the place, with since, the time at
  // which the slot's current stay began, or undefined if the node loses its trust. The parameter since is that of
  // an earlier enter of this delivery, if the slot's record has not changed after it.
  async enter(d, v, since) {
    const e = entrant(d, v), key = `lock.${v.entry.job.name}`;
    e.reoffered &&= since === undefined; // a delivery that has entered the slot before keeps its stay
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
        // The write may have removed slots that had ended, whose workers then wake no other.
        for (const { id } of (next.waiting ?? []).slice(0, Math.max(0, e.places - next.holders.length))) this.wake(key, id);
      }
      if (place.displaces) await this.replace(place.displaces, e.slot.id);
      return { ...place, since: stayOf(next, e.slot.id)?.since };
    }
    return undefined;
  }

  // wake tells the worker of a waiting slot that the slot has a place, or gets one if it asks for it.
  wake(key, id) { this.store.nc.publish(`${this.store.namespace}.${key}`, id); }

  async hasEnded(id, lock, horizon) {
    const { value } = await this.store.read("ledger", slotKey(parseSlot(id)));
    if (value) return isFinal(value);
    return toMs(this.node.now() - parseInstant(stayOf(lock, id).at)) > horizon + this.node.lease;
  }

  // replace ends a holder. If no worker has claimed the holder yet, replace does nothing: the newer slot will ask
  // for its place again. A slot that is split is left to other workers.
  async replace(id, by) {
    const { value, revision } = await this.store.read("ledger", slotKey(parseSlot(id)));
    if (value && !isFinal(value) && !value.shards) await this.end(value, revision, by);
  }

  // leave removes a slot that has its outcome, if its stay is still the one that began at since: the slot may have
  // been reopened meanwhile. If the worker dies first, the holder stays in the lock until another slot finds that
  // it has ended.
  async leave(id, since, entry, signal) {
    if (since === undefined || entry && !guarded(entry.job)) return;
    const key = `lock.${id.split(":")[0]}`;
    while (!signal.aborted) {
      const { value, revision } = await this.store.read("state", key);
      if (!value || stayOf(value, id)?.since !== since) return;
      const { next, woken } = leave(value, id, Math.max(1, entry?.job.concurrency ?? 1));
      const wrote = await this.store.write("state", key, next, revision, { node: this.node.name, signal });
      if (wrote.lost) continue;
      if (wrote.won) for (const one of woken) this.wake(key, one);
      return;
    }
  }
}

const stayOf = (lock, id) => [...lock.holders, ...(lock.waiting ?? [])].find((s) => s.id === id);

const names = (list) => (list ?? []).map((s) => `${s.id} ${s.since}`).join("\n");

// same reports whether two locks have the same slots. A slot whose stay was renewed counts as another one.
const same = (a, b) => names(a.holders) === names(b.holders) && names(a.waiting) === names(b.waiting) && a.newest === b.newest;
