// A worker (docs/protocol.md, sections 11 and 12): it takes slots from queues, claims,
// runs, completes, and settles each message once.
import { randomUUID } from "node:crypto";
import { AckPolicy, DeliverPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { cancelled, complete, decide, isFinal, needsDefinition, release, headAndTail } from "./claim.js";
import { emitter } from "./event.js";
import { follow } from "./follow.js";
import { Locks } from "./locks.js";
import { Contradiction, parseMessage } from "./message.js";
import { Invalid, parseSlot, slotID, slotKey } from "./names.js";
import { abortAfter, pause } from "./store.js";
import { decode, fromSeconds, parseDuration, parseInstant, rawMember, toMs } from "./values.js";

const asking = 1000; // ms that a request for messages stands

// until resolves when the signal aborts.
const until = (signal) => new Promise((done) => {
  if (signal.aborted) done();
  else signal.addEventListener("abort", done, { once: true });
});

// Permanent is an error that no retry mends; an error's retryAfter is its own delay, ms.
export class Permanent extends Error {}

// hands is what this process owes to slots, over all of its incarnations: key to
// {node, controller, fence}.
const hands = new Map();

export class Worker {
  // handlers: a job's name to async (run) => output. places is how many run at once.
  constructor({ store, node, registry, horizon, queues, handlers, places = 16, log }) {
    Object.assign(this, { store, node, registry, horizon, queues, handlers, places, log });
    this.tasks = new Set();
    this.tell = emitter(store, node);
    this.locks = new Locks(store, node, (record, revision, by) => this.end(record, revision, by));
  }

  get running() { return [...hands.values()].filter((h) => h.node === this.node.name).length; }

  // run takes slots until the signal, then waits for what runs, grace ms at most.
  async run(signal, grace) {
    const cancels = this.store.nc.subscribe(`${this.store.namespace}.node.${this.node.name}.cancel`, { callback: (_, m) => this.cancel(m) });
    const streams = [`${this.store.namespace}_slots`, `${this.store.namespace}_timers`];
    const stop = AbortSignal.any([signal, this.node.signal]);
    const serving = Promise.all(streams.flatMap((stream) => this.queues.map((queue) => this.serve(stream, queue, stop))));
    await Promise.race([serving, until(stop).then(() => pause(2 * asking))]); // a broker that is away answers no request
    await Promise.race([Promise.all(this.tasks), pause(grace, this.node.signal)]);
    this.stopping = true;
    for (const hand of hands.values()) if (hand.node === this.node.name) hand.controller.abort(new Error("worker is stopping"));
    await Promise.race([Promise.all(this.tasks), pause(this.node.lease / 4)]);
    cancels.unsubscribe();
  }

  // serve asks for exactly as many slots as can be started: each consumer has its share
  // of the places.
  async serve(stream, queue, signal) {
    const share = { free: Math.max(1, Math.floor(this.places / (2 * this.queues.length))) };
    while (!signal.aborted) {
      try {
        const consumer = await this.consumer(stream, queue);
        if (!consumer) return; // a server without timers
        while (!signal.aborted) await this.fetch(consumer, queue, share, signal);
      } catch (err) {
        if (signal.aborted) return;
        this.log(`queue ${queue}: ${err.message}`);
        await pause(1000, signal);
      }
    }
  }

  async fetch(consumer, queue, share, signal) {
    if (share.free === 0 || !this.node.trusted()) return pause(20, signal);
    const group = this.grouped ? { group: "workers", priority: 0 } : {};
    const messages = await consumer.fetch({ max_messages: share.free, expires: asking, ...group });
    for await (const m of messages) {
      share.free--;
      const task = this.task(m, queue).catch((err) => this.log(`queue ${queue}: ${err.message}`)).finally(() => { share.free++; this.tasks.delete(task); });
      this.tasks.add(task);
    }
  }

  async consumer(stream, queue) {
    const subject = stream.endsWith("_timers") ? `${this.store.namespace}.timer.due.${queue}.>` : `${this.store.namespace}.slot.${queue}.>`;
    const manager = await jetstreamManager(this.store.nc);
    const config = {
      durable_name: queue, filter_subject: subject, deliver_policy: DeliverPolicy.All, ack_policy: AckPolicy.Explicit,
      ack_wait: this.node.lease * 1e6, max_deliver: -1, max_ack_pending: 1_000_000, priority_policy: "prioritized", priority_groups: ["workers"],
    };
    try {
      const info = await manager.consumers.info(stream, queue).catch((err) => {
        if (err.code === 10014) return manager.consumers.add(stream, config);
        throw err;
      });
      this.grouped = info.config.priority_groups?.includes("workers") ?? false;
    } catch (err) {
      if (err.code === 10059 && stream.endsWith("_timers")) return undefined;
      throw err;
    }
    return jetstream(this.store.nc).consumers.get(stream, queue);
  }

  // task is all that happens to one delivery. What throws was not found out, or not
  // written: the slot is wanted again.
  async task(m, queue) {
    const message = this.parse(m);
    if (!message) return;
    const key = slotKey(message.slot);
    const hand = hands.get(key);
    if (hand?.node === this.node.name) return; // in hand already: silence
    if (hand) return m.nak(1000); // an older incarnation of this process still runs it
    const mine = { node: this.node.name, controller: new AbortController() };
    hands.set(key, mine);
    const third = this.node.lease / 3;
    const marks = setInterval(() => { if (this.node.trusted()) m.working(); }, third);
    if (toMs(this.node.now() - m.timestampNanos) > third) m.working();
    const d = { message, queue, published: m.timestampNanos, count: m.info.deliveryCount, payload: m.data };
    try {
      await this.settle(m, await this.work(d, key, mine));
    } catch (err) {
      this.log(`slot ${slotID(message.slot)}: ${err.message}`);
      await this.settle(m, { nak: 1000 });
    } finally {
      clearInterval(marks);
      hands.delete(key);
    }
  }

  parse(m) {
    try {
      return parseMessage((name) => m.headers?.get(name) ?? "", m.subject);
    } catch (err) {
      if (!(err instanceof Invalid)) throw err;
      this.log(`no slot: ${err.message}`);
      if (err instanceof Contradiction || toMs(this.node.now() - m.timestampNanos) > this.trustedHorizon()) m.term(err.message);
      else m.nak(60_000);
      return undefined;
    }
  }

  // trustedHorizon is the age past which slots end. There is none while the clock is
  // implausible.
  trustedHorizon() { return this.node.implausible ? Infinity : this.horizon; }

  // settle answers the broker, once. An ack does not fence: a worker that has lost its claim
  // or its trust sends nothing.
  async settle(m, answer) {
    if (answer === undefined || !this.node.trusted()) return;
    if (answer.nak !== undefined) return m.nak(Math.max(1, Math.ceil(answer.nak)));
    m.ack();
  }

  // work decides and acts until the delivery can be settled: {ack}, {nak: ms}, or
  // nothing.
  async work(d, key, hand) {
    const { slot } = d.message;
    // since is when the slot's stay in its lock began; entered is the revision of its record then.
    let place, since, entered, ownerDead, disowned;
    while (this.node.trusted()) {
      const { value: record, revision } = await this.store.read("ledger", key);
      const v = { now: this.node.now(), error: this.node.clock.error(this.node.own()), implausible: this.node.implausible, self: this.node.name, horizon: this.horizon, record, revision, place, ownerDead: record && ownerDead === record.node, disowned: record && disowned === revision, handles: Boolean(this.handlers[slot.job]) };
      if (!record || !isFinal(record)) v.entry = await this.registry.entry(slot.job, d.message.revision).catch((err) => { if (needsDefinition(d, v)) throw err; });
      const step = decide(d, v);
      switch (step.do) {
        case "ack":
          v.entry = await this.registry.entry(slot.job, 0).catch(() => undefined);
          await follow(this, record, revision, d.message, v.entry);
          return { ack: true };
        case "later":
          return { nak: step.delay };
        case "prove": {
          const { dead, wait } = await this.node.dead(record.node);
          if (!dead) {
            const old = toMs(v.now - (parseSlotStart(record) ?? d.published)) > this.trustedHorizon();
            if (!(await this.disowns(record, revision, old))) return { nak: wait };
            disowned = revision; // what was said of it holds of this claim only
            continue;
          }
          ownerDead = record.node;
          this.tell("fenced", { peer: record.node });
          continue;
        }
        case "enter":
          place = await this.locks.enter(d, v, entered === revision ? since : undefined);
          if (!place) return undefined;
          since = place.since ?? since;
          entered = revision;
          continue;
      }
      const wrote = await this.put(key, step.record, revision);
      if (wrote.unknown) return undefined;
      if (wrote.lost) { [place, ownerDead, disowned] = []; continue; }
      if (v.ownerDead) this.tell("takeover", { ...about(step.record), peer: record.node });
      if (step.do === "end") return this.ended(step.record, wrote.won, d.message, v.entry, since);
      return this.attempt(d, key, hand, { record: step.record, fence: wrote.won, entry: v.entry, since });
    }
    return undefined;
  }

  put(key, record, revision) {
    const extra = { "Cronce-State": record.state };
    if (record.state === "running") extra["Cronce-Owner"] = record.node;
    if (record.retry_at) extra["Cronce-Retry-At"] = record.retry_at;
    return this.store.write("ledger", key, record, revision, { node: this.node.name, signal: this.node.signal, extra });
  }

  // ended is how the message is settled once the record stands at revision.
  async ended(record, revision, message, entry, since) {
    this.tell(record.state, { ...about(record), error: record.error });
    if (!isFinal(record)) return { nak: toMs(parseInstant(record.retry_at) - this.node.now()) };
    await this.locks.leave(record.id, since, entry, this.node.signal);
    await follow(this, record, revision, message, entry);
    return { ack: true };
  }

  // attempt runs the handler of a claim that was won, and completes at its revision.
  async attempt(d, key, hand, { record, fence, entry, since }) {
    Object.assign(hand, { fence, id: record.id });
    if (!this.node.trusted()) return undefined; // the process may have slept since it sent the claim
    let outcome;
    if (this.stopping || hand.controller.signal.aborted) {
      outcome = release(record, this.node.now());
    } else {
      const result = await this.handle(d, hand, record, fence, entry);
      hand.returned = true;
      outcome = complete(record, fence, this.node.now(), this.trustedHorizon(), result);
    }
    if (!this.node.trusted()) return undefined; // it is another's, or will be
    const wrote = await this.completion(key, outcome, fence);
    if (wrote.lost) this.tell("refused", about(record));
    return wrote.won ? this.ended(outcome, wrote.won, d.message, entry, since) : undefined;
  }

  // completion repeats what the server refuses: the handler of this attempt has started, so
  // the slot stays in hand, and is not claimed again.
  async completion(key, outcome, fence) {
    while (this.node.trusted()) {
      try {
        return await this.put(key, outcome, fence);
      } catch (err) {
        this.log(err.message);
        await pause(500, this.node.signal);
      }
    }
    return { unknown: true };
  }

  async handle(d, hand, record, fence, entry) {
    const { job } = entry;
    const timeout = job.timeout ? abortAfter(parseDuration(job.timeout)) : undefined;
    const signal = AbortSignal.any([hand.controller.signal, this.node.signal, ...(timeout ? [timeout] : [])]);
    const backoff = Math.min(parseDuration(job.backoff) * 2 ** (record.attempt - 1), parseDuration(job.max_backoff)) * (0.75 + Math.random() / 2);
    try {
      let value; // the slot's result, as run.result(value) sets it
      const result = (v) => {
        if (Buffer.byteLength(JSON.stringify(v) ?? "") > 65_536) throw new RangeError("result: want at most 64 KiB of JSON");
        value = v ?? undefined;
      };
      const output = await this.handlers[job.name]({ id: record.id, job: job.name, attempt: record.attempt, fence, node: this.node.name, payload: Buffer.from(d.payload).toString(), signal, result });
      return { output: output === undefined ? "" : headAndTail(String(output), job.output ?? 4096), value };
    } catch (err) {
      return {
        error: hand.ending ?? (err.message || "failed, and did not say why"), permanent: err instanceof Permanent, retryAfter: err.retryAfter,
        stopped: this.stopping && hand.controller.signal.aborted, cancelled: hand.ending !== undefined, backoff,
      };
    }
  }

  // end has a slot ended for a newer one: asks its owner, or writes its outcome if
  // no node owns it.
  async end(record, revision, by) {
    if (record.state === "running") {
      const request = JSON.stringify({ v: 1, id: record.id, fence: revision, replaced: true, by });
      const answer = await this.store.nc.request(`${this.store.namespace}.node.${record.node}.cancel`, request, { timeout: 2000, noMux: true, reply: `${this.store.namespace}.reply.${randomUUID()}` }).catch(() => undefined);
      if (answer || !(await this.node.dead(record.node)).dead) return;
    }
    const slot = parseSlot(record.id), v = { record, revision, now: this.node.now(), self: this.node.name };
    const outcome = cancelled({ message: { slot } }, v, `replaced by ${by}`);
    if ((await this.put(slotKey(slot), outcome, revision)).won) this.tell("cancelled", { ...about(outcome), error: outcome.error });
  }

  // disowns asks the owner of a record whether it holds the claim. No answer is no "no",
  // unless the slot is old.
  async disowns(record, revision, old) {
    const request = JSON.stringify({ v: 1, id: record.id, claim: revision });
    const answer = await this.store.nc.request(`${this.store.namespace}.node.${record.node}.cancel`, request, { timeout: 1000 }).then((m) => decode(m.string())).catch(() => undefined);
    if (!answer || answer.error || typeof answer.holds !== "boolean") return old;
    return !answer.holds || (old && Boolean(answer.ended));
  }

  // cancel ends the very attempt that is asked about, and no later one; or it answers
  // whether this process has the slot in hand.
  cancel(m) {
    let answer = { v: 1, ending: false };
    try {
      const { slot, claim, fence, cause } = cancelRequest(m.string());
      if (claim) {
        // What it wrote last may still be stored, and it cannot say that nothing starts by that.
        if (!this.node.trusted()) return;
        const hand = hands.get(slotKey(slot));
        answer = { v: 1, holds: hand !== undefined, ...(hand?.controller.signal.aborted && !hand.returned && { ended: true }) };
        return m.respond(JSON.stringify(answer));
      }
      const id = slotID(slot);
      const hand = [...hands.values()].find((h) => h.id === id && String(h.fence) === fence && h.node === this.node.name);
      if (hand && !hand.returned && (hand.ending !== undefined || !hand.controller.signal.aborted)) {
        hand.ending = cause;
        hand.controller.abort(new Error(hand.ending));
        answer.ending = true;
      }
    } catch (err) {
      answer.error = err.message;
    }
    m.respond(JSON.stringify(answer));
  }
}

// cancelRequest reads a request to a node: {slot, fence, cause} to end an attempt, {slot,
// claim} to say whether the slot is in hand. The revisions are texts, because a Number does not
// hold all of them.
export function cancelRequest(text) {
  const { id, by, replaced } = decode(text), slot = parseSlot(String(id));
  const revision = (name) => (/^[1-9][0-9]*$/.exec(rawMember(text, name) ?? "") ?? [])[0];
  const claim = revision("claim"), fence = revision("fence");
  if (claim) return { slot, claim };
  if (!fence) throw new Invalid("a request to cancel names no fence: want the revision of the running record");
  const name = clean(String(by ?? "")) || "nobody knows";
  return { slot, fence, cause: replaced ? `replaced by ${name}` : `cancelled by ${name}` };
}

// parseSlotStart is the instant of a planned slot, undefined of a triggered run.
const parseSlotStart = (record) => {
  const { at } = parseSlot(record.id);
  return at === undefined ? undefined : fromSeconds(at);
};

// clean leaves out what cannot be printed, and what is too long.
const clean = (name) => Buffer.from(name.replace(/\p{C}/gu, "")).subarray(0, 256).toString().replace(/\uFFFD+$/, "");

const about = (record) => ({ id: record.id, job: record.id.split(":")[0], attempt: record.attempt });
