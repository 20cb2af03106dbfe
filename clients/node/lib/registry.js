// A copy of the registry that follows its changes (docs/protocol.md, section 5).
import { parseEntry } from "./definition.js";
import { Invalid } from "./names.js";
import { pause } from "./store.js";
import { parseInstant } from "./values.js";
import { watch } from "./watch.js";

export class Registry {
  // known is {revision, time}: all writes up to revision were read, and time is the newest of their timestamps. Listeners are called after each change. If an
  // entry was removed, or can no longer be read, they get its last version, with the time of the change as ended.
  constructor(store, log) {
    Object.assign(this, { store, log, entries: new Map(), unreadable: new Map(), revision: 0, listeners: new Set() });
  }

  // run returns when all entries were read, and follows changes until the signal aborts. If the watch ends, it
  // begins another one, which reads all entries again.
  run(signal) {
    return new Promise((ready) => {
      signal.addEventListener("abort", ready, { once: true });
      const allRead = (revision) => { this.known = { revision: Math.max(revision, this.revision), time: this.time }; ready(); };
      const watching = async () => {
        for (; !signal.aborted; await pause(500, signal)) {
          try {
            await watch(this.store.nc, `${this.store.namespace}_jobs`, signal, { changed: (e) => this.change(e), ready: allRead });
          } catch (err) {
            this.log(`registry: ${err.message}`);
          }
        }
        ready();
      };
      void watching();
    });
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
    if (!(this.time > time)) this.time = time; // a new leader's clock may be behind
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
