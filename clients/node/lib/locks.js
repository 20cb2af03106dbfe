// The locks on the broker, and the lines of their jobs (docs/protocol.md, section 13). lock.js computes the values of the
// locks; this file reads and writes them.
import { guarded, planAt } from "./definition.js";
import { call, displaced, empty, enter, isOver, leave, order, stood, supersedes, tidy } from "./lock.js";
import { isFinal } from "./claim.js";
import { stored } from "./follow.js";
import { Lines } from "./lines.js";
import { callMessages, formatMessage } from "./message.js";
import { Invalid, parseSlot, slotKey } from "./names.js";
import { backOff, pause } from "./store.js";
import { fromSeconds } from "./values.js";

const mostKnown = 20_000; // a lock that is forgotten costs a read
const mostCalls = 50; // slots that one write calls, if it can call any number
const displaceEvery = 250; // ms until the holder of a place is asked again to end

export class Locks {
  // end(record, revision, by) ends a slot without an outcome, because the newer slot by replaces it.
  constructor({ store, node, registry, horizon, log }, end) {
    Object.assign(this, { store, node, registry, horizon, log, end, lines: new Lines(store) });
    this.known = new Map(); // the locks that this node wrote last, by their keys: {value, revision}
    this.working = new Map(); // by job, a promise for the end of the last request: one at a time works on a lock
  }

  // enter asks for a place for an entrant (lock.js), and returns {kind, inWay, displaces}.
  enter(job, entrant) { return this.ask(job, { enter: entrant }); }

  // leave takes a slot out of its lock that has its outcome. If slots stand in the line, the same write calls those that may
  // run now. found says that this node has not written the outcome itself, or did not enter the slot.
  leave(id, found) { return this.ask(id.split(":")[0], { leave: id, found }); }

  // stand puts a slot into the line of its job. revision is that of its record, which is waiting. Then it looks at the lock
  // once more: a place may have become free after the slot had asked for one.
  async stand(job, slot, revision) {
    const sequence = await this.lines.put(slot, job, revision, this.node.signal);
    if (sequence === undefined) throw new Error(`put ${slot.id} into the line of its job: not answered`);
    await this.ask(job, { stood: sequence, id: slot.id, revision });
  }

  // ask carries out one request to the lock of a job, after those that were handed in before.
  ask(job, request) {
    const mine = (this.working.get(job) ?? Promise.resolve()).then(() => this.change(job, request));
    const settled = mine.then(() => {}, () => {}).finally(() => {
      if (this.working.get(job) === settled) this.working.delete(job);
    });
    this.working.set(job, settled);
    return mine;
  }

  // change carries out a request with one write of the lock. If other nodes write it meanwhile, it begins anew. What it
  // decided by a remembered lock counts only after a won write.
  async change(job, request) {
    const key = `lock.${job}`, entry = await this.registry.entry(job, 0).catch((err) => {
      if (request.leave === undefined) throw err;
      return null; // the slot leaves, and the fleet's sweep has a worker call from the line
    });
    let answer, look = false;
    for (let lost = 0; ;) {
      const { value, revision, remembered } = await this.recall(key), lock = value ?? empty(job);
      const step = await new Change(this, job, entry, lock).compute(request, look);
      if (same(lock, step.next)) {
        this.known.delete(key);
        if (remembered) continue;
        await this.publishCalls(step.calls, entry);
        return answer ?? step.answer;
      }
      const wrote = await this.write(key, step.next, revision);
      if (wrote.unknown) throw new Error(`the lock of ${job} was not written`);
      if (wrote.lost) {
        if (++lost > 1) await pause(backOff(lost) * Math.random(), this.node.signal);
        continue;
      }
      answer ??= step.answer;
      await this.publishCalls(step.calls, entry);
      if (!step.again) return answer;
      [request, look] = [{}, true]; // carried out; what is left is to look at the line once more
    }
  }

  async recall(key) {
    const known = this.known.get(key);
    return known ? { ...known, remembered: true } : this.store.read("state", key);
  }

  async write(key, next, revision) {
    const value = tidy(next);
    this.known.delete(key);
    const wrote = await this.store.write("state", key, value, revision, { node: this.node.name, signal: this.node.signal, trusted: () => this.node.trusted() });
    if (this.known.size >= mostKnown) this.known.clear();
    if (wrote.won) this.known.set(key, { value, revision: wrote.won });
    return wrote;
  }

  // publishCalls publishes the messages of slots that were called: {record, revision}. If that fails, the fleet's sweep finds
  // that they hold a place and do not start.
  publishCalls(calls, entry) {
    return this.publishAll(calls, entry).catch((err) => this.log(`${err.message}; the fleet publishes it within a minute`));
  }

  // publishAll is publishCalls, but throws if that fails.
  async publishAll(calls, entry) {
    await Promise.all(calls.map(async ({ record, revision }) => {
      const slot = parseSlot(record.id), queue = entry?.job.queue ?? record.queue;
      const body = slot.token === undefined ? entry?.payload ?? "" : Buffer.from(record.payload ?? "", "base64");
      for (const m of callMessages(record, revision, this.node.name, isChained(entry, slot))) {
        await stored(this.store, `${this.store.namespace}.slot.${queue}.${slot.job}`, { ...formatMessage(m), "Nats-Expected-Stream": `${this.store.namespace}_slots` }, body);
      }
    }));
  }

  // displace ends the holder of a place, which the slot { id: by, at } is to replace. The request to end may be lost, so it
  // is repeated until the holder has left, or a newer slot replaces this one. It returns false if the signal aborts first. A
  // slot that is split is left to other workers.
  async displace(job, id, by, at, signal) {
    for (; !signal.aborted; await pause(displaceEvery, signal)) {
      const { value: lock } = await this.store.read("state", `lock.${job}`);
      if (!lock?.holders.some((h) => h.id === id) || displaced(lock, { on_time: true, at }, "replace")) return true;
      const { value: record, revision } = await this.store.read("ledger", slotKey(parseSlot(id)));
      if (record && !isFinal(record) && !record.shards) await this.end(record, revision, by);
    }
    return false;
  }
}

// Change computes one write of a job's lock. calls has the slots whose messages are to be published after it.
// again says that the line has to be looked at once more after it. entry is null if the definition cannot be read.
class Change {
  constructor(locks, job, entry, lock) {
    Object.assign(this, { locks, job, entry, next: lock, calls: [], again: false });
    this.overlap = entry?.job.overlap ?? "queue";
    this.places = entry === null ? 0 : !entry ? 1 : guarded(entry.job) ? Math.max(1, entry.job.concurrency ?? 1) : Infinity; // one that was deleted has one
  }

  async compute({ enter: entrant, leave: id, found, stood: sequence, ...standing }, look) {
    const { node, store } = this.locks;
    if (id !== undefined) this.next = found ? await this.withoutEnded(id) : leave(this.next, id, node.name);
    if (entrant) this.answer = await this.enter(entrant);
    if (sequence !== undefined) {
      this.next = stood(this.next, sequence);
      if (this.next.holders.some((h) => h.id === standing.id)) { // it was called meanwhile; its message may be the one that is at hand
        const { value: record, revision } = await store.read("ledger", slotKey(parseSlot(standing.id)));
        if (record?.state === "waiting") this.calls.push({ record, revision });
      }
    }
    const tend = look || (sequence !== undefined && supersedes(this.overlap)); // others may have been displaced
    if (this.next.waiting && (tend || this.next.holders.length < this.places)) await this.callFromLine();
    else if (look && !this.next.waiting) await this.lookAgain();
    return this;
  }

  // enter asks for a place. Before a slot is skipped because of a holder, the record of the holder is read: it may have ended,
  // and not left yet.
  async enter(entrant) {
    for (;;) {
      const { next, ...answer } = enter(this.next, entrant), before = this.next;
      if (answer.kind === "skipped" && entrant.overlap === "skip") this.next = await this.withoutEnded(answer.inWay);
      if (this.next !== before) continue;
      if (answer.kind === "cancelled") {
        const { value } = await this.locks.store.read("ledger", slotKey(parseSlot(answer.inWay)));
        if (value && value.state !== "waiting") return { kind: "held" }; // the newer slot has a place too, or has ended
      }
      this.next = next;
      return answer;
    }
  }

  // withoutEnded returns the lock without a holder whose record says that it has its outcome, whatever its node. The record is
  // read after the lock.
  async withoutEnded(id) {
    if (!this.next.holders.some((h) => h.id === id)) return this.next;
    const { value } = await this.locks.store.read("ledger", slotKey(parseSlot(id)));
    return value && isFinal(value) ? { ...this.next, holders: this.next.holders.filter((h) => h.id !== id) } : this.next;
  }

  // lookAgain reads the line after a write that said that it is empty. A slot may have been put there meanwhile, whose worker
  // had looked at the lock before that write.
  async lookAgain() {
    const found = await this.locks.lines.read(this.job, this.next.line ?? 0);
    if (!found.length) return;
    this.next = { ...this.next, waiting: true };
    await this.callFromLine();
  }

  // callFromLine gives the free places to the first slots of the line, and moves the lock's line behind the entries that do
  // not count any more. A slot that has to end is called without a place.
  async callFromLine() {
    for (let line = this.next.line ?? 0; ;) {
      const entries = await this.locks.lines.read(this.job, line);
      if (!entries.length) {
        this.next = { ...this.next, waiting: false, line };
        this.again = true;
        return;
      }
      const left = await this.callAmong(entries);
      line = left[0]?.sequence ?? entries.at(-1).sequence + 1;
      this.next = { ...this.next, line };
      if (left.length) return;
      if (this.calls.length >= mostCalls) {
        this.again = true;
        return;
      }
    }
  }

  // callAmong calls slots among the entries, in the order of their turns, and returns the entries that still count.
  async callAmong(entries) {
    const { store, node, horizon } = this.locks, done = new Set(entries.filter((e) => e.id === undefined)), unreadable = new Set();
    const inTurn = entries.filter((e) => e.id !== undefined).sort(order);
    for (let chosen; (chosen = this.choose(inTurn, done, unreadable)).length;) {
      const records = await Promise.all(chosen.map((e) => store.read("ledger", slotKey(parseSlot(e.id))).catch((err) => {
        if (err instanceof Invalid) return { unreadable: true };
        throw err;
      })));
      const over = [], v = { now: node.now(), error: node.clock.error(node.own()), implausible: node.implausible, horizon };
      for (const [i, e] of chosen.entries()) {
        const { value: record, revision } = records[i];
        (records[i].unreadable ? unreadable : done).add(e);
        if (record?.state !== "waiting" || this.next.holders.some((h) => h.id === e.id)) continue;
        if (isOver(this.next, e, record, this.overlap, v) || this.places === Infinity) {
          over.push({ record, revision }); // after the write, no worker would look at its entry again
          continue;
        }
        this.next = call(this.next, e, v.now);
        this.calls.push({ record, revision });
      }
      await this.locks.publishAll(over, this.entry);
    }
    return entries.filter((e) => !done.has(e));
  }

  // choose returns the entries whose records decide what becomes of them: those that were displaced, and as many others as
  // there are free places.
  choose(inTurn, done, unreadable) {
    let free = this.places - this.next.holders.length;
    return inTurn.filter((e) => {
      if (done.has(e) || unreadable.has(e)) return false;
      if (this.next.holders.some((h) => h.id === e.id)) return void done.add(e);
      return displaced(this.next, e, this.overlap) || free-- > 0;
    });
  }
}

// isChained reports whether a slot follows from another job's slot.
function isChained(entry, slot) {
  if (slot.token !== undefined || !entry?.job.plan.after?.length) return false;
  return ["", "none"].includes(planAt(entry, fromSeconds(slot.at))?.plan.schedule ?? "");
}

const names = (lock) => lock.holders.map((h) => `${h.id} ${h.since} ${h.node ?? ""}`).join("\n");

// same reports whether two locks have the same slots, with the same nodes, and the same line.
const same = (a, b) => names(a) === names(b) && Boolean(a.waiting) === Boolean(b.waiting) && (a.line ?? 0) === (b.line ?? 0) && a.newest === b.newest;
