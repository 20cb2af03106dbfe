// A producer (docs/protocol.md, section 8). It works in rounds: it publishes all slots that are due by now and not
// covered by its position, and then its position is that "now". A job with slots that are not acknowledged yet is held
// at a position of its own, and the rounds of the other jobs go on. The watermark is the least of these positions. The
// producer shares no work with other producers and publishes every slot, as the protocol allows.
import { headers as newHeaders } from "@nats-io/transport-node";
import { due, late, nextDue } from "./due.js";
import { UnknownVersion, formatInstant, fromMs, optional, parseInstant, toMs } from "./values.js";
import { Invalid } from "./names.js";
import { backOff, pause, repeat, stopWith, unlimited } from "./store.js";

const atOnce = 16; // messages of a job that are sent before the first of them is acknowledged
const asleep = 5000; // ms without a round after which the watermark is read again: others may be ahead

export class Producer {
  // held has the jobs with slots that are not acknowledged, by their names: {position, stop, since, failed}. stop ends
  // the publications that are under way; undefined: there are none. since is when they began, or when the last one was
  // acknowledged. failed says that those before them were not acknowledged. broken has the definitions whose slots could
  // not be computed: other producers publish them.
  constructor({ store, node, registry, horizon, log }) {
    Object.assign(this, { store, node, registry, horizon, log, ended: [], held: new Map(), broken: new WeakMap() });
  }

  async run(signal) {
    if (signal.aborted) return;
    let wake = new AbortController();
    const listener = (ended) => {
      if (ended) this.ended.push({ ...ended, ended: ended.ended ?? this.node.certain() });
      wake.abort();
    };
    this.registry.listeners.add(listener);
    void this.notice(signal);
    // Not AbortSignal.any, of which a signal that lives long keeps a trace each time.
    signal.addEventListener("abort", () => { this.interrupt(); wake.abort(); }, { once: true });
    while (!signal.aborted) {
      wake = new AbortController();
      try {
        await this.round(signal);
      } catch (err) {
        if (!signal.aborted) this.log(`producer: ${err.message}`);
        await pause(500, signal);
      }
      const next = this.next();
      const wait = next === undefined ? 500 : toMs(next - this.node.certain());
      await pause(Math.min(500, Math.max(1, wait)), wake.signal);
    }
    this.registry.listeners.delete(listener);
    await this.advancing;
  }

  // next returns when the next slot falls due, or undefined if none will.
  next() {
    const now = this.node.certain(), all = [];
    for (const entry of this.registry.entries.values()) this.contain([entry], () => all.push(nextDue([entry], now)));
    return all.filter((at) => at !== undefined).reduce((a, b) => (a === undefined || b < a ? b : a), undefined);
  }

  // contain calls compute unless one of the definitions is broken. If compute throws because a schedule cannot be computed,
  // the definitions count as broken from then on.
  contain(entries, compute) {
    if (entries.some((entry) => this.broken.has(entry))) return;
    try {
      compute();
    } catch (err) {
      if (!(err instanceof Invalid)) throw err;
      for (const entry of entries) this.broken.set(entry, err);
      this.log(`job ${entries[0].job.name}: ${err.message}`);
    }
  }

  // notice interrupts the producer when the connection is lost.
  async notice(signal) {
    const events = this.store.nc.status();
    stopWith(signal, events);
    for await (const { type } of events) {
      if (type !== "disconnect") continue;
      this.interrupt();
    }
  }

  // interrupt ends all publications. The next round reads the watermark, and decides again about all that was not
  // acknowledged.
  interrupt() {
    this.last = undefined;
    for (const { stop } of this.held.values()) stop?.abort();
  }

  async round(signal) {
    if (!this.node.trusted()) return;
    if (performance.now() - this.last >= asleep || !this.able()) this.interrupt();
    if (!this.able()) throw new Error("this clock is more than an hour off the broker's: nothing is published");
    if (this.last === undefined) await this.resume();
    const { known } = this.registry, now = this.node.certain();
    // A position that is ahead of this clock stays: it says nothing about a newer registry.
    const moved = (position) => (!position || now > position.time ? { time: now, revision: known.revision, registryTime: known.time } : position);
    const jobs = new Map([...this.registry.entries].map(([name, entry]) => [name, [entry]]));
    for (const entry of this.ended) jobs.set(entry.job.name, [entry, ...(jobs.get(entry.job.name) ?? [])]);
    for (const [name, entries] of jobs) this.contain(entries, () => this.begin(name, entries, now, moved));
    const blind = this.registry.blind() || [...this.registry.entries.values()].some((entry) => this.broken.has(entry));
    this.ended = this.ended.filter((entry) => this.held.has(entry.job.name) || entry.ended > now);
    this.last = performance.now();
    this.position = moved(this.position);
    // The next round does not wait for an answer to this write.
    if (!blind) this.advancing ??= this.advance(this.least(), signal).catch((err) => this.log(`producer: ${err.message}`)).finally(() => { this.advancing = undefined; });
  }

  // begin publishes the slots of one job that are due by now. entries are the job's definition, and those that were
  // removed. If publications of the job are under way, begin waits for a later round. After a minute without an
  // acknowledgement it ends them, because their slots are late by then.
  begin(name, entries, now, moved) {
    let held = this.held.get(name);
    if (held?.stop) {
      if (toMs(now - held.since) > late) held.stop.abort();
      return;
    }
    const position = held ? held.position : this.position;
    const { messages, ranges } = due(position, entries, now, this.horizon, this.node.name);
    if (messages.length + ranges.length === 0) return void this.held.delete(name);
    held = { position, stop: new AbortController(), since: now, failed: held?.failed ?? false };
    this.held.set(name, held);
    unlimited(held.stop.signal);
    void this.publishAll(held, messages, ranges, held.stop.signal).then((done) => {
      Object.assign(held, { stop: undefined, failed: !done });
      if (done) held.position = moved(held.position);
    });
  }

  // publishAll publishes the messages of one job, and reports whether all are acknowledged. The ranges follow when all
  // others are. If the last publications of the job failed, one message is sent first, and the others follow when it is
  // acknowledged. A few are sent at once: a job may have a thousand after an outage, and each takes some 15 KB until it is
  // acknowledged.
  async publishAll(held, messages, ranges, signal) {
    const first = held.failed ? 1 : 0, publish = (m) => this.publish(m, signal).then(() => { held.since = this.node.certain(); });
    for (const some of inGroups([messages.slice(0, first), messages.slice(first), ranges])) await Promise.all(some.map(publish));
    return !signal.aborted;
  }

  // least returns the position up to which the slots of all jobs are acknowledged, or undefined if there is none.
  least() {
    const least = (a, b) => (a === undefined || b === undefined ? undefined : a < b ? a : b);
    return [...this.held.values()].reduce((all, { position }) => all && position && {
      time: least(all.time, position.time), revision: least(all.revision, position.revision), registryTime: least(all.registryTime, position.registryTime),
    }, this.position);
  }

  // wentBack reports whether a stored watermark is behind the one that this producer last read or wrote: an operator has reset
  // it, or the bucket was restored. Then it begins again from there, without its own position. A deleted watermark has not
  // gone back.
  wentBack(stored) {
    const before = this.stored;
    this.stored = stored;
    if (!before || (stored.time >= before.time && stored.revision >= before.revision)) return false;
    this.log(`producer: the watermark went back to ${formatInstant(stored.time)}: what is due since then is published again`);
    this.interrupt();
    this.held.clear();
    this.ended = [];
    this.position = stored;
    return true;
  }

  // resume sets the positions to the watermark, where that is further. If the watermark cannot be read and the
  // producer has no position yet, it begins a horizon ago.
  async resume() {
    const { value, unreadable } = await this.store.readAny("state", "watermark");
    if (unreadable && !this.position) {
      const ago = this.node.certain() - fromMs(this.horizon);
      this.position = { time: ago, revision: 0, registryTime: ago };
    }
    if (!value) return;
    const stored = positionOf(value);
    if (this.wentBack(stored)) return;
    const further = (position) => (!position || (stored.time >= position.time && stored.revision >= position.revision) ? stored : position);
    for (const owner of [this, ...this.held.values()]) owner.position = further(owner.position);
  }

  // publish repeats a message until the stream has acknowledged it, or the signal aborts.
  async publish({ lane, job, headers, body }, signal) {
    const head = newHeaders();
    for (const [name, text] of Object.entries({ ...headers, "Nats-Expected-Stream": `${this.store.namespace}_slots` })) head.set(name, text);
    await repeat(async (n) => {
      if (!this.able()) return undefined;
      if (n === 4) this.log(`publish ${headers["Cronce-Slot"]}: not acknowledged yet`);
      return (await this.store.publish(`${this.store.namespace}.slot.${lane}.${job}`, body, head)).seq;
    }, backOff, signal);
  }

  // able reports whether a copy of a message or of a write may be sent. The process may have slept, or its clock may
  // have been set, since the last copy.
  able() { return this.node.trusted() && !this.node.implausible; }

  // outdated reports whether a plan needs time zone data, and another live producer has newer data. Then this
  // producer must not move the watermark, because it may compute other slots.
  outdated() {
    const zoned = [...this.registry.entries.values()].some((e) => e.plans.some((p) => (p.plan.timezone ?? "UTC") !== "UTC"));
    return zoned && (!this.node.met || this.node.producers().some(({ tzdata }) => tzdata > process.versions.tz));
  }

  // advance moves the watermark at most once a second. If another producer has moved it, the next try follows
  // after five seconds.
  async advance(position, signal) {
    if (!position || performance.now() < (this.again ?? 0)) return;
    this.again = performance.now() + 1000;
    if (this.outdated()) return;
    const { time, revision, registryTime } = position;
    const found = await this.store.readAny("state", "watermark");
    if (found.unreadable instanceof UnknownVersion) return; // a newer program wrote it
    if (found.value) {
      if (this.wentBack(positionOf(found.value))) return;
      const at = parseInstant(found.value.time);
      if (at > time || found.value.registry_revision > revision || (at === time && found.value.registry_revision === revision)) {
        this.again = performance.now() + 5000;
        return;
      }
    }
    const value = { ...found.value, v: 1, time: formatInstant(time), registry_revision: revision, node: this.node.name };
    if (registryTime !== undefined) value.registry_time = formatInstant(registryTime);
    const wrote = await this.store.write("state", "watermark", value, found.revision, { node: this.node.name, signal, trusted: () => this.able() });
    if (wrote.won) this.stored = position;
    if (wrote.lost) this.again = performance.now() + 5000;
  }
}

// inGroups cuts each list into lists of at most atOnce.
function* inGroups(lists) {
  for (const list of lists) for (let i = 0; i < list.length; i += atOnce) yield list.slice(i, i + atOnce);
}

const positionOf = (w) => ({ time: parseInstant(w.time), revision: w.registry_revision, registryTime: optional(w.registry_time) });
