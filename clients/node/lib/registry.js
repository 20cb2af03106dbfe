// A copy of the registry that follows its changes (docs/protocol.md, section 5).
import { parseEntry } from "./definition.js";
import { Invalid } from "./names.js";
import { pause } from "./store.js";
import { parseInstant } from "./values.js";
import { Seen, watch } from "./watch.js";

export class Registry {
  // known is {revision, time}: all writes up to revision were read, and time is the newest of their timestamps. Listeners
  // are called after each change. If an entry was removed, or can no longer be read, they get its last version, with the
  // time of the change as ended: undefined, if the removal left no marker. listed resolves when all entries were read.
  // replaced is called if the registry was created again, or restored: then its revisions stand for other writes.
  constructor(store, log) {
    Object.assign(this, { store, log, listeners: new Set(), replaced: () => {} });
    this.clear();
  }

  clear() {
    Object.assign(this, { entries: new Map(), unreadable: new Map(), revision: 0, time: undefined, known: undefined });
    const before = this.ready; // a caller of run that waits for the first listing gets this one
    this.listed = new Promise((done) => { this.ready = () => { before?.(); done(); }; });
  }

  // run follows the registry until the signal aborts, and returns when listed resolves.
  async run(signal) {
    signal.addEventListener("abort", () => this.ready(), { once: true });
    void this.follow(signal);
    await this.listed;
  }

  watch = watch;

  async follow(signal) {
    const seen = new Seen();
    let said; // the same error is logged once
    const events = {
      seen, changed: (e) => this.change(e), gone: (key) => this.change({ key, revision: this.revision, pending: 0 }),
      ready: (revision) => {
        said = undefined;
        this.known = { revision: Math.max(revision, this.revision), time: this.time };
        this.ready();
      },
      again: () => {
        this.log("registry: it was created again, or restored: its revisions went back");
        this.clear();
        this.replaced();
      },
    };
    for (; !signal.aborted; await pause(500, signal)) {
      try {
        await this.watch(this.store.nc, `${this.store.namespace}_jobs`, signal, events);
      } catch (err) {
        if (err.message !== said) this.log(`registry: ${err.message}`);
        said = err.message;
      }
    }
    this.ready();
  }

  change({ key, text, revision, time, pending }) {
    const before = this.entries.get(key);
    this.unreadable.delete(key);
    this.entries.delete(key);
    if (text !== undefined) {
      try {
        const entry = parseEntry(text, revision, time);
        if (entry.job.name !== key) throw new Invalid(`it names job ${entry.job.name}`);
        this.entries.set(key, entry);
      } catch (err) {
        this.unreadable.set(key, err);
        this.log(`job ${key}: ${err.message}`);
      }
    }
    if (revision > this.revision) this.revision = revision;
    if (time !== undefined && !(this.time > time)) this.time = time; // a new leader's clock may be behind
    if (pending === 0) this.known = { revision: this.revision, time: this.time };
    const ended = before && !this.entries.has(key) ? { ...before, ended: time } : undefined;
    for (const listener of this.listeners) listener(ended);
  }

  // blind reports whether there may be slots that this program cannot compute and others can: of a definition or
  // a past plan that it cannot read. If the error is a plain Invalid, no program can read the definition.
  blind() {
    return [...this.unreadable.values()].some((err) => err.constructor !== Invalid) || [...this.entries.values()].some((e) => e.plans.some((p) => !p.schedule));
  }

  // entry returns a job's definition that is at least as new as revision. If the watch lags behind, it asks the
  // leader. It returns undefined if the leader has none.
  async entry(job, revision) {
    if (this.unreadable.has(job)) throw new Error(`job ${job}: its definition cannot be read`);
    const watched = this.entries.get(job);
    if (watched && watched.revision >= revision) return watched;
    const seen = this.revision;
    const found = await this.store.read("jobs", job);
    // If the job was deleted, the watch has seen that, or will. Until then the answer may be that of a deposed leader.
    if (Math.max(seen, found.revision) < revision) throw new Error(`job ${job}: its definition is older than the message`);
    if (!found.value) return undefined;
    return parseEntry(found.text, found.revision, parseInstant(found.time));
  }
}
