// What stands in the registry, as it changes (docs/protocol.md, section 5).
import { parseEntry } from "./definition.js";
import { Invalid } from "./names.js";
import { pause } from "./store.js";
import { parseInstant } from "./values.js";
import { watch } from "./watch.js";

export class Registry {
  // known is up to where all has been seen: {revision, time}. A listener gets the entry that was removed,
  // or that cannot be read any more, with ended, the time of that.
  constructor(store, log) {
    Object.assign(this, { store, log, entries: new Map(), unreadable: new Map(), revision: 0, listeners: new Set() });
  }

  // run tells what is there before it returns, and goes on until the signal. A watch that
  // ends is begun again, with all that is there.
  run(signal) {
    return new Promise((ready) => {
      signal.addEventListener("abort", ready, { once: true });
      const told = (revision) => { this.known = { revision: Math.max(revision, this.revision), time: this.time }; ready(); };
      const watching = async () => {
        for (; !signal.aborted; await pause(500, signal)) {
          try {
            await watch(this.store.nc, `${this.store.namespace}_jobs`, signal, { changed: (e) => this.change(e), ready: told });
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
    if (revision > this.revision) Object.assign(this, { revision, time });
    if (pending === 0) this.known = { revision: this.revision, time: this.time };
    const ended = before && !this.entries.has(key) ? { ...before, ended: time } : undefined;
    for (const listener of this.listeners) listener(ended);
  }

  // blind reports whether others may know slots of a definition that this program cannot read, or of a
  // past plan. A definition that is Invalid and no more is broken for every program.
  blind() {
    return [...this.unreadable.values()].some((err) => err.constructor !== Invalid) || [...this.entries.values()].some((e) => e.plans.some((p) => !p.schedule));
  }

  // entry is a job's definition that is at least as new as revision, asked of the
  // leader where the watch lags; undefined: the leader says that there is none.
  async entry(job, revision) {
    if (this.unreadable.has(job)) throw new Error(`job ${job}: its definition cannot be read`);
    const watched = this.entries.get(job);
    if (watched && watched.revision >= revision) return watched;
    const found = await this.store.read("jobs", job);
    if (!found.value) return undefined;
    if (found.revision < revision) throw new Error(`job ${job}: its definition is older than the message`);
    return parseEntry(found.text, found.revision, parseInstant(found.time));
  }
}
