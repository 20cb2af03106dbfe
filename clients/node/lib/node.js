// One incarnation of this process in the fleet (docs/protocol.md, section 9): its heartbeat and its trust, the
// broker's clock, and whether other nodes are dead. A node has trust while it can be sure that no other node has
// declared it dead.
import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { BrokerClock, behind, boot, steady } from "./clock.js";
import { Invalid, checkName } from "./names.js";
import { formatDuration, formatInstant, fromMs, parseDuration, parseInstant } from "./values.js";
import { decodeOf, pause, unlimited } from "./store.js";
import { Seen, watch } from "./watch.js";

const stopwatch = () => performance.now();

export class Node {
  // lease is in ms, and so is shift, which is added to this machine's clock. describe() returns the members of
  // the node's record that say what the node does. handlers are the jobs that it has handlers for.
  constructor(store, lease, prefix, shift, describe, log = () => {}, handlers = []) {
    const random = randomBytes(4).toString("hex");
    const host = (prefix || hostname()).replace(/[^A-Za-z0-9_-]/g, "-").slice(0, 24);
    this.name = `${host}-${process.pid}-${Date.now().toString(36)}-${random}`;
    Object.assign(this, { store, lease, shift, describe, log, handlers, seen: new Map(), origin: this.wall(shift) - steady() });
    this.ended = new AbortController(); // aborted when trust has ended, for good
    unlimited(this.signal);
    this.started = this.own();
    this.trustedUntil = -Infinity;
    this.revision = 0;
    this.answers = 0; // heartbeats from which the clock was estimated, the first of them at first
    this.clock = new BrokerClock();
  }

  get signal() { return this.ended.signal; }

  // trusted reports whether the node has trust. Call it right before a handler is started or a slot is
  // completed, because the timer of a process that was suspended fires late.
  trusted() {
    if (!this.signal.aborted && boot() + behind >= this.trustedUntil && this.revision > 0) this.end("its lease lapsed");
    return !this.signal.aborted && this.revision > 0;
  }

  end(why) {
    if (this.signal.aborted) return;
    clearTimeout(this.timer);
    const reason = new Error(`node ${this.name}: ${why}`);
    this.ended.abort(Object.assign(reason, { code: why === "stopped" ? "STOPPED" : "LEASE_LOST" }));
  }

  // wall is the time of this machine's clock. own is that time as it was when the node began, plus the time since
  // then: so a clock that is set meanwhile makes no slot due. Both are in ms.
  wall(shift = this.shift) { return Date.now() + shift; }
  own() { return this.origin + steady(); }

  // offset is the broker's clock minus this machine's, in ms.
  get offset() { return this.clock.best ? this.own() + this.clock.offset - this.wall() : 0; }

  // now is the estimated time of the broker's clock, in nanoseconds. certain is a time that the broker's clock has
  // certainly reached, in nanoseconds.
  now() { return fromMs(this.own() + this.clock.offset); }
  certain() { return fromMs(this.own() + this.clock.offset - this.clock.error(this.own())); }

  // implausible reports whether this machine's clock and the broker's differ by more than an hour: then one of
  // them is wrong.
  get implausible() { return Math.abs(this.offset) > 3_600_000; }

  // met is true once this node has read the records of all other nodes.
  met = false;

  // start returns when a heartbeat is acknowledged and the broker's clock is estimated.
  async start() {
    void this.meet();
    await this.beat();
    this.beating = this.loop();
    if (this.handlers.length > 0 && this.trusted()) void this.list().catch((err) => this.log(`the list of handlers: ${err.message}`));
    // No node acts before it has an estimate of the broker's clock. Heartbeats do not wait for it.
    while (!this.signal.aborted && !this.estimated()) await pause(20, this.signal);
  }

  // meet follows the records of all nodes. If the watch ends, it begins another one. It logs an error once, until a watch
  // has read all records.
  async meet() {
    const seen = new Seen();
    let said;
    const ready = () => { [this.met, said] = [true, undefined]; };
    for (; !this.signal.aborted; await pause(500, this.signal)) {
      try {
        await this.watch(this.store.nc, `${this.store.namespace}_nodes`, this.signal, { seen, changed: (e) => this.notice(e), ready });
      } catch (err) {
        if (err.message !== said && !this.signal.aborted) this.log(`records of nodes: ${err.message}`);
        said = err.message;
      }
    }
  }

  watch = watch;

  // estimated reports whether the node may act by its estimate of the broker's clock. If the error is more than 50 ms, it
  // waits for more heartbeats: for four in all, or for ten seconds.
  estimated() {
    return Boolean(this.clock.best) && (this.clock.error(this.own()) <= 50 || this.answers >= 4 || boot() - this.first >= 10_000);
  }

  async loop() {
    while (!this.signal.aborted) {
      await pause(this.lease / 10, this.signal);
      if (!this.signal.aborted && this.trusted()) await this.beat();
    }
  }

  async beat() {
    const sent = boot(), before = this.own();
    // No copy is sent once trust has lapsed: the process may have slept since it sent the last one.
    const trusted = () => this.revision === 0 || this.trusted();
    const wrote = await this.write("alive", this.signal, trusted).catch((err) => ({ failed: err.message }));
    const after = this.own();
    if (wrote.failed) return this.end(wrote.failed);
    if (wrote.lost) return this.end("fenced");
    if (!wrote.won) return;
    this.revision = wrote.won;
    if (boot() >= sent + 0.75 * this.lease) return this.end("its heartbeat came too late");
    this.trustedUntil = sent + 0.75 * this.lease;
    clearTimeout(this.timer);
    if (!this.signal.aborted) this.timer = setTimeout(() => this.trusted(), this.trustedUntil - boot() + 20);
    // On a slow broker the next heartbeat must not wait for a second answer.
    void this.measure(before, after, wrote.won);
  }

  // list writes for which jobs this node has handlers. It leaves out those for which a message has no room.
  async list() {
    const { max_payload: most = 1_048_576 } = this.store.nc.info ?? {};
    let size = 1024, n = 0;
    for (; n < this.handlers.length && size < most; n++) size += this.handlers[n].length + 3;
    if (size >= most) n--;
    const value = { v: 1, node: this.name, handlers: this.handlers.slice(0, n), more: this.handlers.length - n || undefined };
    const wrote = await this.store.write("state", `handlers.${this.name}`, value, 0, { node: this.name, signal: this.signal });
    if (wrote.lost) throw new Error("another program has written it");
  }

  write(state, signal, trusted) {
    const error = this.clock.error(this.own());
    const value = {
      v: 1, node: this.name, state, started: formatInstant(fromMs(this.started + this.clock.offset)), lease: formatDuration(this.lease),
      ...this.describe(), clock_offset: formatDuration(this.offset), clock_error: formatDuration(Number.isFinite(error) ? error : 0),
      tzdata: process.versions.tz, version: "node-client",
    };
    return this.store.write("nodes", this.name, value, this.revision, { node: this.name, signal, trusted });
  }

  // stop writes that the node has stopped, over its own last heartbeat, also if that was not acknowledged. If a slot that
  // it claimed still runs (busy), it writes nothing, and other nodes wait for the lease.
  async stop(busy) {
    const trusted = !busy && this.trusted();
    this.end("stopped");
    await this.beating;
    const limit = AbortSignal.timeout(2000);
    while (trusted && !limit.aborted) {
      if (!(await this.write("stopped", limit)).lost) return;
      const { value, revision } = await this.store.read("nodes", this.name);
      if (value?.state !== "alive") return; // fenced
      this.revision = revision;
    }
  }

  // measure estimates the broker's clock from a heartbeat.
  async measure(before, after, revision) {
    const found = await this.store.read("nodes", this.name).catch(() => undefined);
    if (found?.revision !== revision) return;
    this.clock.observe(before, after, Number(parseInstant(found.time) / 1000n) / 1000);
    this.answers++;
    this.first ??= boot();
  }

  notice({ key, text, revision }) {
    const known = this.seen.get(key), same = known && known.revision === revision && known.text === text;
    this.seen.set(key, { text, revision, since: same ? known.since : stopwatch() });
    this.forget();
  }

  // forget removes nodes that the bucket has forgotten: after an hour, or four leases.
  forget() {
    if (this.seen.size <= 1000 || this.forgot > stopwatch() - 60_000) return;
    this.forgot = stopwatch();
    for (const [name, { since }] of this.seen) if (since < this.forgot - Math.max(3_600_000, 4 * this.lease)) this.seen.delete(name);
  }

  // producers returns the records of the other live producers, as far as they can be read.
  producers() {
    const live = [];
    for (const [key, { text, since }] of this.seen) {
      try {
        const value = text === undefined ? undefined : decodeOf("nodes", key, text);
        if (value?.producer && value.state === "alive" && key !== this.name && stopwatch() - since < Math.max(this.lease, parseDuration(value.lease))) live.push(value);
      } catch (err) {
        if (!(err instanceof Invalid)) throw err;
      }
    }
    return live;
  }

  // dead returns {dead: true}, with fenced if this call has declared the node dead, or {wait: ms}. It declares a node dead
  // if the node's key has not changed for a lease, with a write at the revision that was seen.
  async dead(name) {
    checkName("node", name); // a record may have any text there
    if (!this.seen.has(name)) {
      const found = await this.store.read("nodes", name);
      if (!this.seen.has(name)) this.notice({ key: name, ...found });
    }
    const { text, revision, since } = this.seen.get(name);
    const step = challenge(name, this.name, text, this.lease, stopwatch() - since, this.now());
    if (!step.value) return step;
    const wrote = await this.store.write("nodes", name, step.value, revision, { node: this.name, signal: this.signal });
    if (wrote.won) return { dead: true, fenced: true };
    const found = await this.store.read("nodes", name);
    if (found.value && found.value.state !== "alive") return { dead: true };
    this.notice({ key: name, ...found });
    return { wait: this.lease };
  }
}

// challenge returns what follows if a node's key has not changed for still ms: {dead}, {wait}, or {value}, which
// is to be written at the revision that was seen. Pure.
export function challenge(name, by, text, lease, still, now) {
  const value = text === undefined ? undefined : decodeOf("nodes", name, text);
  if (value && value.state !== "alive") return { dead: true };
  const limit = Math.max(lease, value ? parseDuration(value.lease) : 0);
  if (still < limit) return { wait: limit - still };
  const missing = {
    v: 1, node: name, started: "0001-01-01T00:00:00Z", lease: "0s", producer: false, worker: false, running: 0,
    clock_offset: "0s", clock_error: "0s", tzdata: "", version: "",
  };
  return { value: { ...(value ?? missing), state: "fenced", fenced_by: by, fenced_at: formatInstant(now) } };
}
