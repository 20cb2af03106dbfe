// What stands in the registry, as it changes (docs/protocol.md, section 5).
import { parseEntry } from "./definition.js";
import { parseInstant } from "./values.js";
import { watch } from "./watch.js";

const quiet = 500; // ms: then the last write of every job has been seen

export class Registry {
  constructor(store, log) {
    Object.assign(this, { store, log, entries: new Map(), unreadable: new Set(), revision: 0, listeners: new Set() });
  }

  // run tells what is there before it returns, and goes on until the signal.
  async run(signal) {
    await new Promise((ready, fail) => {
      const told = (revision) => { this.settled = { revision: Math.max(revision, this.revision), time: this.time }; ready(); };
      watch(this.store.nc, `${this.store.namespace}_jobs`, signal, { changed: (e) => this.change(e), ready: told }).catch(fail);
    });
  }

  change({ key, text, revision, time }) {
    this.unreadable.delete(key);
    this.entries.delete(key);
    if (text !== undefined) {
      try {
        this.entries.set(key, parseEntry(text, revision, time));
      } catch (err) {
        // Whether it is broken, of a later format, or merely beyond this program: other
        // nodes may know slots of it.
        this.unreadable.add(key);
        this.log(`job ${key}: ${err.message}`);
      }
    }
    Object.assign(this, { revision, time, changed: performance.now() });
    for (const listener of this.listeners) listener();
  }

  // known is up to where all has been seen: {revision, time}.
  known() {
    if (this.changed !== undefined && performance.now() - this.changed >= quiet) this.settled = { revision: Math.max(this.revision, this.settled.revision), time: this.time };
    return this.settled;
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
