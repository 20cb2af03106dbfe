// The locks on the broker (docs/protocol.md, section 13). lock.js computes their values; this file reads and
// writes them.
import { guarded } from "./definition.js";
import { empty, enter, entrant, leave } from "./lock.js";
import { isFinal } from "./claim.js";
import { parseSlot, slotKey } from "./names.js";
import { parseInstant, toMs } from "./values.js";

const short = 1000; // ms in its lock after which a slot leaves it by a write of its own
const mostKnown = 20_000; // a lock that is forgotten costs a read

export class Locks {
  // end(record, revision, by) ends a slot without an outcome, because the newer slot by replaces it.
  constructor(store, node, end) {
    Object.assign(this, { store, node, end });
    // known has the locks that this node wrote, by their keys: {value, revision, over}. over is the ID of the lock's only
    // slot if that has ended: this node wrote its outcome.
    this.known = new Map();
  }

  // recall returns the lock that this node wrote last, or reads it. A write over a remembered lock that has changed
  // meanwhile is refused. So what was decided by a remembered lock counts only after a won write.
  async recall(key) {
    const known = this.known.get(key);
    if (known) return { ...known, remembered: true };
    return this.store.read("state", key);
  }

  // write stores a lock, and remembers it.
  async write(key, value, revision) {
    this.known.delete(key);
    const wrote = await this.store.write("state", key, value, revision, { node: this.node.name, signal: this.node.signal });
    if (this.known.size >= mostKnown) this.known.clear();
    if (wrote.won) this.known.set(key, { value, revision: wrote.won });
    return wrote;
  }

  // enter asks for a place in the lock until the answer is stored. It returns the place, with since, the time at
  // which the slot's current stay began, or undefined if the node loses its trust. The parameter since is that of
  // an earlier enter of this delivery, if the slot's record has not changed after it.
  async enter(d, v, since) {
    const e = entrant(d, v), key = `lock.${v.entry.job.name}`;
    e.reoffered &&= since === undefined; // a delivery that has entered the slot before keeps its stay
    const ended = new Map();
    while (this.node.trusted()) {
      const { value, revision, remembered, over } = await this.recall(key);
      const lock = value ?? empty(v.entry.job.name);
      if (over !== undefined && over !== e.slot.id) ended.set(over, true);
      const { ask, place, next } = enter(lock, e, ended);
      if (remembered && (ask || same(lock, next))) {
        this.known.delete(key);
        continue;
      }
      if (ask) {
        for (const id of ask) ended.set(id, await this.hasEnded(id, lock, v.horizon));
        continue;
      }
      if (!same(lock, next)) {
        const wrote = await this.write(key, next, revision);
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
  // it has ended. So does a short slot under "skip" behind which no slot is known to wait: the next slot takes its place
  // with the write with which it enters.
  async leave(id, since, entry) {
    if (since === undefined || entry && !guarded(entry.job)) return;
    const key = `lock.${id.split(":")[0]}`, known = this.known.get(key);
    const alone = known?.value.holders.length === 1 && !known.value.waiting?.length && known.value.holders[0].since === since;
    if (alone && known.value.holders[0].id === id && oneAtOnce(entry) && toMs(this.node.now() - parseInstant(since)) < short) {
      known.over = id;
      return;
    }
    while (!this.node.signal.aborted) {
      const { value, revision, remembered } = await this.recall(key);
      if (remembered && stayOf(value, id)?.since !== since) {
        this.known.delete(key);
        continue;
      }
      if (!value || stayOf(value, id)?.since !== since) return;
      const { next, woken } = leave(value, id, Math.max(1, entry?.job.concurrency ?? 1));
      const wrote = await this.write(key, next, revision);
      if (wrote.lost) continue;
      if (wrote.won) for (const one of woken) this.wake(key, one);
      return;
    }
  }
}

// oneAtOnce reports whether a job runs one slot at once, and skips those that fall due meanwhile.
const oneAtOnce = (entry) => entry?.job.overlap === "skip" && (entry.job.concurrency ?? 1) === 1;

const stayOf = (lock, id) => [...lock.holders, ...(lock.waiting ?? [])].find((s) => s.id === id);

const names = (list) => (list ?? []).map((s) => `${s.id} ${s.since}`).join("\n");

// same reports whether two locks have the same slots. A slot whose stay was renewed counts as another one.
const same = (a, b) => names(a.holders) === names(b.holders) && names(a.waiting) === names(b.waiting) && a.newest === b.newest;
