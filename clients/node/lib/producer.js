// A producer (docs/protocol.md, section 8). It works in rounds: it publishes all slots that are due by now and
// not covered by its position. When all are acknowledged, it moves its position to that "now". It shares no work
// with other producers and publishes every slot, as the protocol allows.
import { headers as newHeaders } from "@nats-io/transport-node";
import { due, nextDue } from "./due.js";
import { UnknownVersion, formatInstant, fromMs, optional, parseInstant, toMs } from "./values.js";
import { backOff, pause, repeat } from "./store.js";

const asleep = 5000; // ms without a round after which the watermark is read again: others may be ahead

export class Producer {
  constructor({ store, node, registry, horizon, log }) {
    Object.assign(this, { store, node, registry, horizon, log, ended: [] });
  }

  async run(signal) {
    let wake = new AbortController();
    const listener = (ended) => {
      if (ended) this.ended.push(ended);
      wake.abort();
    };
    this.registry.listeners.add(listener);
    this.connected = new AbortController();
    void this.notice(signal);
    while (!signal.aborted) {
      wake = new AbortController();
      try {
        await this.round(signal);
      } catch (err) {
        if (!signal.aborted) this.log(`producer: ${err.message}`);
        await pause(500, signal);
      }
      const next = nextDue(this.registry.entries.values(), this.node.certain());
      const wait = next === undefined ? 500 : toMs(next - this.node.certain());
      await pause(Math.min(500, Math.max(1, wait)), AbortSignal.any([signal, wake.signal]));
    }
    this.registry.listeners.delete(listener);
  }

  // notice ends the current round when the connection is lost. The next round reads the watermark, and decides
  // again about all that was not acknowledged.
  async notice(signal) {
    const events = this.store.nc.status();
    signal.addEventListener("abort", () => events.stop(), { once: true });
    for await (const { type } of events) {
      if (type !== "disconnect") continue;
      this.connected.abort();
      this.connected = new AbortController();
      this.last = undefined;
    }
  }

  async round(ended) {
    if (!this.node.trusted()) return;
    const signal = AbortSignal.any([ended, this.connected.signal]);
    if (this.node.implausible) throw new Error("this clock is more than an hour off the broker's: nothing is published");
    const idle = performance.now() - (this.last ?? -Infinity);
    if (!(idle < asleep)) await this.resume();
    const now = this.node.certain(), { known } = this.registry, blind = this.registry.blind(), removed = [...this.ended];
    const { messages, ranges } = due(this.position, [...this.registry.entries.values(), ...removed], now, this.horizon, this.node.name);
    await Promise.all(messages.map((m) => this.publish(m, signal)));
    await Promise.all(ranges.map((m) => this.publish(m, signal)));
    if (signal.aborted) return;
    this.last = performance.now();
    this.ended = this.ended.filter((entry) => !removed.includes(entry));
    if (!this.position || now > this.position.time) this.position = { time: now, revision: known.revision, registryTime: known.time };
    if (!blind) await this.advance(signal);
  }

  // resume sets the position to the watermark, if that is further. If the watermark cannot be read and the
  // producer has no position yet, it begins a horizon ago.
  async resume() {
    const { value, unreadable } = await this.store.readAny("state", "watermark");
    if (unreadable && !this.position) {
      const ago = this.node.certain() - fromMs(this.horizon);
      this.position = { time: ago, revision: 0, registryTime: ago };
    }
    if (!value) return;
    const stored = { time: parseInstant(value.time), revision: value.registry_revision, registryTime: optional(value.registry_time) };
    if (!this.position || (stored.time >= this.position.time && stored.revision >= this.position.revision)) this.position = stored;
  }

  // publish repeats a message until the stream has acknowledged it, or the signal aborts.
  async publish({ queue, job, headers, body }, signal) {
    const head = newHeaders();
    for (const [name, text] of Object.entries({ ...headers, "Nats-Expected-Stream": `${this.store.namespace}_slots` })) head.set(name, text);
    await repeat(async (n) => {
      if (!this.node.trusted()) return undefined; // the process may have slept since it decided to publish
      if (n === 4) this.log(`publish ${headers["Cronce-Slot"]}: not acknowledged yet`);
      return (await this.store.publish(`${this.store.namespace}.slot.${queue}.${job}`, body, head)).seq;
    }, backOff, signal);
  }

  // outdated reports whether a plan needs time zone data, and another live producer has newer data. Then this
  // producer must not move the watermark, because it may compute other slots.
  outdated() {
    const zoned = [...this.registry.entries.values()].some((e) => e.plans.some((p) => (p.plan.timezone ?? "UTC") !== "UTC"));
    return zoned && (!this.node.met || this.node.producers().some(({ tzdata }) => tzdata > process.versions.tz));
  }

  // advance moves the watermark at most once a second. If another producer has moved it, the next try follows
  // after five seconds.
  async advance(signal) {
    if (performance.now() < (this.again ?? 0)) return;
    this.again = performance.now() + 1000;
    if (this.outdated()) return;
    const { time, revision, registryTime } = this.position;
    const found = await this.store.readAny("state", "watermark");
    if (found.unreadable instanceof UnknownVersion) return; // a newer program wrote it
    if (found.value) {
      const at = parseInstant(found.value.time);
      if (at > time || found.value.registry_revision > revision || (at === time && found.value.registry_revision === revision)) {
        this.again = performance.now() + 5000;
        return;
      }
    }
    const value = { ...found.value, v: 1, time: formatInstant(time), registry_revision: revision, node: this.node.name };
    if (registryTime !== undefined) value.registry_time = formatInstant(registryTime);
    const wrote = await this.store.write("state", "watermark", value, found.revision, { node: this.node.name, signal });
    if (wrote.lost) this.again = performance.now() + 5000;
  }
}
