// A worker (docs/protocol.md, sections 10 and 11): it receives slots from queues, claims, runs and completes
// them, and answers each message at most once.
import { AckPolicy, DeliverPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { complete, decide, fenceOf, fit, isFinal, needsDefinition, outlasts, release, retryWait, headAndTail, tooOld } from "./claim.js";
import { about, emitter } from "./event.js";
import { follow } from "./follow.js";
import { Locks } from "./locks.js";
import { entrant } from "./lock.js";
import { Contradiction, bulkLane, parseMessage } from "./message.js";
import { Invalid, slotID, slotKey } from "./names.js";
import { Permanent, delayOf, jsonOf, outputOf, textOf } from "./handler.js";
import { Requests } from "./requests.js";
import { longest, pause, turn, unlimited } from "./store.js";
import { guarded } from "./definition.js";
import { parseDuration, toMs } from "./values.js";

const headerRoom = 4096; // bytes of a message that its headers, and the nonce of its value, may take
const askedAtOnce = 32; // messages of one request: a payload has up to 256 KiB, and heartbeats wait behind what a server sends
const asking = 1000; // ms until a request for messages expires
const unrecorded = 8; // for each place, the slots in flight: those whose handlers have returned are being recorded
const maxWait = 500; // ms that a slot waits for a place until its message goes back: another worker may have one

// consumerConfig returns the settings of a queue's consumer. A server older than 2.12 does not know the priority policy.
export function consumerConfig(queue, subject, lease, version) {
  const [major, minor] = version.split(".").map(Number);
  return {
    durable_name: queue, filter_subject: subject, deliver_policy: DeliverPolicy.All, ack_policy: AckPolicy.Explicit,
    ack_wait: Math.round(lease * 1e6), max_deliver: -1, max_ack_pending: 1_000_000,
    ...((major > 2 || minor >= 12) && { priority_policy: "prioritized", priority_groups: ["workers"] }),
  };
}

// add creates a consumer. If the server limits its unacked messages, add creates it with the limit.
export async function add(consumers, stream, config) {
  try {
    return await consumers.add(stream, config);
  } catch (err) {
    const limit = err.code === 10121 ? Number(/\d+$/.exec(err.message)?.[0]) : 0;
    if (!(limit > 0 && limit < config.max_ack_pending)) throw err;
    return add(consumers, stream, { ...config, max_ack_pending: limit });
  }
}

// until returns a promise that resolves when the signal aborts.
const until = (signal) => new Promise((done) => {
  if (signal.aborted) done();
  else signal.addEventListener("abort", done, { once: true });
});

// mayHold reports whether a slot that has its outcome may hold a place in its lock, although this delivery has not entered it.
const mayHold = (d, v) => (!v.entry || guarded(v.entry.job)) && Boolean(v.record || d.count > 1 || d.message.offer);

export class Worker {
  // handlers are functions async (run) => output, by the names of their jobs. places bounds the handlers that
  // run at once. inflight has the slots that were received and not settled, by this worker or by those of older
  // incarnations, by their keys: {node, controller, fence}. life is the signal of the process: it ends after all of them.
  constructor({ store, node, registry, horizon, queues, handlers, places = 16, inflight = new Map(), life = node.signal, log }) {
    Object.assign(this, { store, node, registry, horizon, queues, handlers, places, inflight, life, log });
    this.tasks = new Set();
    this.shares = [];
    this.standing = 0; // slots that are being put into the lines of their jobs
    this.waiting = new Set(); // is called when a place is free
    this.emit = emitter(store, node);
    this.locks = new Locks(this, (record, revision, by) => this.requests.end(record, revision, by));
    this.requests = new Requests(this);
  }

  get running() { return [...this.inflight.values()].filter((h) => h.node === this.node.name).length; }

  // free returns how many places are free. A slot has its place until its handler has returned, also a handler of an older
  // incarnation. Outcomes that are not answered are bounded too.
  get free() {
    const busy = [...this.inflight.values()].filter((h) => !h.returned).length;
    return Math.min(this.places - busy, unrecorded * this.places - this.inflight.size - this.standing);
  }

  // release wakes what waits for a place.
  release() {
    for (const end of [...this.waiting]) end();
  }

  // released returns when a place may be free, or after ms.
  released(ms) {
    return new Promise((done) => {
      const end = () => {
        clearTimeout(timer);
        this.waiting.delete(end);
        done();
      };
      const timer = setTimeout(end, ms);
      this.waiting.add(end);
    });
  }

  // run receives slots until the signal aborts. Then it waits for running handlers, for at most grace ms.
  async run(signal, grace) {
    const cancels = this.store.nc.subscribe(`${this.store.namespace}.node.${this.node.name}.cancel`, { callback: (_, m) => this.requests.answer(m) });
    const [slots, timers] = [`${this.store.namespace}_slots`, `${this.store.namespace}_timers`];
    const stop = this.stop = unlimited(AbortSignal.any([signal, this.node.signal])), over = new AbortController();
    const within = (ms) => pause(ms, over.signal); // a timer that outlives run would keep the process alive
    const serving = Promise.all(this.queues.flatMap((queue) => [[slots, queue], [slots, bulkLane(queue)], [timers, queue]].map(([stream, lane]) => this.serve(stream, queue, lane, stop))));
    await Promise.race([serving, until(stop).then(() => within(2 * asking))]); // a broker that is away answers no request
    await Promise.race([Promise.all(this.tasks), within(grace), until(this.node.signal)]);
    this.stopping = true;
    for (const flight of this.inflight.values()) if (flight.node === this.node.name) flight.controller.abort(new Error("worker is stopping"));
    await Promise.race([Promise.all(this.tasks), within(this.node.lease / 4)]);
    over.abort();
    cancels.unsubscribe();
  }

  // serve requests messages of one consumer: that of a lane of a queue, which has the lane's name. asked is how many messages are requested and have not arrived, and ask is how
  // many the next request is for: twice as many as the last one, if that got all.
  async serve(stream, queue, lane, signal) {
    const share = { asked: 0, ask: 1 };
    this.shares.push(share);
    while (!signal.aborted) {
      try {
        const consumer = await this.consumer(stream, lane);
        if (!consumer) return; // a server without timers
        while (!signal.aborted) await this.fetch(consumer, queue, share, signal);
      } catch (err) {
        if (signal.aborted) return;
        this.log(`queue ${lane}: ${err.message}`);
        await pause(1000, signal);
      }
    }
  }

  async fetch(consumer, queue, share, signal) {
    if (!this.node.trusted()) return pause(20, signal);
    const { free } = this, asked = this.shares.reduce((sum, other) => sum + other.asked, 0);
    // While a place is free, the requests of the other consumers do not keep this one from its messages.
    const ask = Math.max(Math.min(share.ask, free - asked, askedAtOnce), free > 0 ? 1 : 0);
    if (ask === 0) return this.released(20);
    const group = this.grouped ? { group: "workers", priority: 0 } : {};
    let got = 0;
    share.asked = ask;
    try {
      const messages = await consumer.fetch({ max_messages: ask, expires: asking, ...group });
      for await (const m of messages) {
        got++;
        share.asked = Math.max(0, ask - got);
        const task = this.task(m, queue).catch((err) => this.log(`queue ${queue}: ${err.message}`)).finally(() => this.tasks.delete(task));
        this.tasks.add(task);
      }
    } finally {
      share.asked = 0;
    }
    share.ask = got === ask ? 2 * ask : Math.max(1, got);
  }

  async consumer(stream, lane) {
    const subject = stream.endsWith("_timers") ? `${this.store.namespace}.timer.due.${lane}.>` : `${this.store.namespace}.slot.${lane}.>`;
    const manager = await jetstreamManager(this.store.nc), { info: server } = this.store.nc;
    if (!server) throw new Error("no connection");
    const config = consumerConfig(lane, subject, this.node.lease, server.version);
    try {
      const info = await manager.consumers.info(stream, lane).catch((err) => {
        if (err.code === 10014) return add(manager.consumers, stream, config);
        throw err;
      });
      this.grouped = info.config.priority_groups?.includes("workers") ?? false;
    } catch (err) {
      if (err.code === 10059 && stream.endsWith("_timers")) return undefined;
      throw err;
    }
    return jetstream(this.store.nc).consumers.get(stream, lane);
  }

  // task processes one delivery. If a read or a write fails, it requests the message again. until is when it gives up to
  // wait for a place.
  async task(m, queue, until = performance.now() + maxWait) {
    if (!this.node.trusted()) return; // the process may have slept since the message arrived
    const message = this.parse(m);
    if (!message) return;
    const key = slotKey(message.slot);
    const flight = this.inflight.get(key);
    if (flight?.node === this.node.name) return; // already in flight: no answer
    if (flight) return m.nak(1000); // an older incarnation of this process still runs it
    if (this.stop?.aborted) return this.settle(m, { nak: 100 }); // not at once, or it comes back to this worker's own open request
    if (this.free <= 0) {
      if (performance.now() >= until) return this.settle(m, { nak: 1000 });
      await this.released(until - performance.now());
      return this.task(m, queue, until);
    }
    const mine = { node: this.node.name, controller: new AbortController() };
    this.inflight.set(key, mine);
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
      this.settled(key, mine);
    }
  }

  // settled ends that a slot is in flight.
  settled(key, flight) {
    if (this.inflight.get(key) === flight) this.inflight.delete(key);
    this.release();
  }

  parse(m) {
    try {
      return parseMessage((name) => m.headers?.get(name) ?? "", m.subject);
    } catch (err) {
      if (!(err instanceof Invalid)) throw err;
      this.log(`invalid message: ${err.message}`);
      if (err instanceof Contradiction || toMs(this.node.now() - m.timestampNanos) > this.trustedHorizon()) m.term(err.message);
      else m.nak(60_000);
      return undefined;
    }
  }

  // trustedHorizon is the age from which a slot is not started any more. While the clock is implausible, there
  // is none.
  trustedHorizon() { return this.node.implausible ? Infinity : this.horizon; }

  // settle answers a message. The broker accepts the answer of any worker, so a worker that has lost its claim
  // or its trust must not send one.
  async settle(m, answer) {
    await turn();
    if (answer === undefined || !this.node.trusted()) return;
    if (answer.nak !== undefined) return m.nak(Math.max(1, Math.ceil(answer.nak)));
    m.ack();
  }

  // work decides and acts until the delivery can be settled. It returns {ack}, {nak: ms}, or undefined: then
  // the worker must not answer.
  async work(d, key, flight) {
    const { slot } = d.message;
    // place is the answer of the slot's lock, and entered the revision of the slot's record then.
    let place, entered, ownerDead, disowned;
    // At a first delivery, the slot enters its lock, and is claimed or put into the line, without a read, at revision 0: if there
    // is a record, the write is lost. Any other decision needs the read.
    let unread = d.count === 1 && d.message.offer === 0;
    while (this.node.trusted()) {
      const { value: record, revision } = unread ? { revision: 0 } : await this.store.read("ledger", key);
      if (entered !== revision) place = undefined; // since it entered, the slot may have ended, and left its lock
      const v = { now: this.node.now(), error: this.node.clock.error(this.node.own()), implausible: this.node.implausible, self: this.node.name, horizon: this.horizon, record, revision, place, ownerDead: record && ownerDead === record.node, disowned: record && disowned === revision, handles: Object.hasOwn(this.handlers, slot.job) };
      try {
        v.entry = await this.registry.entry(slot.job, record && isFinal(record) ? 0 : d.message.revision);
        v.deleted = v.entry === undefined;
      } catch (err) {
        if (unread) { unread = false; continue; }
        if (needsDefinition(d, v)) throw err;
      }
      const step = decide(d, v);
      if (unread && !["start", "enter", "stand"].includes(step.do)) { unread = false; continue; }
      switch (step.do) {
        case "ack":
          if (record) await follow(this, record, revision, d.message, v);
          if (mayHold(d, v)) await this.locks.leave(slotID(slot), true);
          return { ack: true };
        case "later":
          return { nak: step.delay };
        case "prove": {
          const { dead, fenced, wait } = await this.node.dead(record.node);
          if (!dead) {
            if (!(await this.requests.disowns(record, revision, !v.implausible && tooOld(d, v)))) return { nak: wait };
            disowned = revision; // the answer is about this claim only
            continue;
          }
          ownerDead = record.node;
          if (fenced) this.emit("fenced", { peer: record.node });
          continue;
        }
        case "enter":
          place = await this.locks.enter(slot.job, entrant(d, v));
          entered = revision;
          continue;
      }
      const wrote = step.stored ? { won: revision } : await this.put(key, step.record, revision);
      if (wrote.unknown) return undefined;
      if (wrote.lost) { [unread, entered, ownerDead, disowned] = [false]; continue; }
      if (v.ownerDead && step.do === "start") this.emit("takeover", { ...about(step.record, wrote.won), peer: record.node });
      if (step.do === "stand") return this.stand(d, key, flight, entrant(d, v).slot, wrote.won, place);
      if (step.do === "end") return this.ended(step.record, wrote.won, d, v, place);
      return this.attempt(d, key, flight, { record: step.record, fence: wrote.won, entry: v.entry, place });
    }
    return undefined;
  }

  // stand puts a slot into its job's line. The message is acked then: the worker that frees a place calls the slot with a new
  // message, which may come to this process at once. A slot that replaces another one goes on until that has left its place.
  async stand(d, key, flight, slot, revision, { displaces }) {
    const { job } = d.message.slot;
    this.standing++;
    this.settled(key, flight);
    await this.locks.stand(job, slot, revision).finally(() => this.standing--);
    if (displaces && !(await this.locks.displace(job, displaces, slot.id, slot.at, this.stop ?? this.node.signal))) return { nak: 100 };
    return { ack: true };
  }

  put(key, record, revision, { signal = this.node.signal, trusted = () => this.node.trusted() } = {}) {
    const extra = { "Cronce-State": record.state };
    if (record.state === "running") extra["Cronce-Owner"] = record.node;
    if (record.retry_at) extra["Cronce-Retry-At"] = record.retry_at;
    const room = (this.store.nc.info?.max_payload ?? Infinity) - headerRoom;
    return this.store.write("ledger", key, fit(record, room), revision, { node: this.node.name, signal, trusted, extra });
  }

  // ended does what follows from a record that was stored at revision without a running attempt, and returns
  // how to settle the message. v is the view by which it was decided, or {record, entry}. The slot leaves its lock before the
  // message is acked: if this worker dies first, the one that gets the message takes the slot out.
  async ended(record, revision, d, v, place) {
    this.emit(record.state, { ...about(record, fenceOf(record, revision)), error: record.error });
    if (!isFinal(record)) return { nak: retryWait(record, this.node.now()) };
    await follow(this, record, revision, d.message, v);
    const entered = place?.kind === "held";
    if (entered || mayHold(d, v)) await this.locks.leave(record.id, !entered);
    return { ack: true };
  }

  // attempt runs the handler after the claim was won, and completes the slot at the revision of the claim.
  async attempt(d, key, flight, { record, fence, entry, place }) {
    Object.assign(flight, { fence, id: record.id });
    if (!this.node.trusted()) return undefined; // the process may have slept since it sent the claim
    let outcome, life = this.node.signal; // life ends the write of the outcome
    if (this.stopping || flight.controller.signal.aborted) {
      outcome = release(record, this.node.now());
    } else {
      const result = await this.handle(d, flight, record, fence, entry);
      flight.returned = true;
      this.release();
      outcome = complete(record, fence, this.node.now(), this.trustedHorizon(), result);
    }
    if (!this.node.trusted()) return undefined; // another worker has taken over the slot, or will
    // A handler that returned in time has its outcome, however late the broker is back: a takeover moves the revision.
    if (flight.returned) life = this.life;
    const wrote = await this.completion(key, record, outcome, fence, life);
    if (wrote.lost) this.emit("refused", { ...about(record, fence), error: "another worker has the slot" });
    return wrote.won ? this.ended(outcome, wrote.won, d, { record, entry }, place) : undefined;
  }

  // completion writes the outcome of the claim record, until life ends. It repeats a write that the server refuses: the
  // handler has started, so the slot must stay in flight and not be claimed again. A conflict means that another worker
  // has taken the slot over, unless the ledger has lost the claim: then the outcome is written over what it has.
  async completion(key, record, outcome, fence, life) {
    for (let at = fence; !life.aborted;) {
      try {
        const wrote = await this.put(key, outcome, at, { signal: life, trusted: () => !life.aborted });
        if (!wrote.lost) return wrote;
        const { value, revision } = await this.store.read("ledger", key);
        if (revision === at || !outlasts(record, value)) return wrote;
        this.log(`slot ${record.id}: the ledger lost its claim, as after a purge or a restore; its outcome is written all the same`);
        at = revision;
      } catch (err) {
        this.log(err.message);
        await pause(500, life);
      }
    }
    return { unknown: true };
  }

  async handle(d, flight, record, fence, entry) {
    const { job } = entry, { controller } = flight;
    const backoff = Math.min(parseDuration(job.backoff) * 2 ** Math.min(record.attempt - 1, 60), parseDuration(job.max_backoff)) * (0.75 + Math.random() / 2);
    // Not AbortSignal.any: that keeps each listener which a handler leaves on it for as long as the node lives.
    const lost = () => controller.abort(this.node.signal.reason);
    const expire = () => controller.abort(new DOMException(`the attempt's timeout of ${job.timeout} is over`, "TimeoutError"));
    const timer = job.timeout ? setTimeout(expire, Math.min(Math.ceil(parseDuration(job.timeout)), longest)) : undefined;
    this.node.signal.addEventListener("abort", lost, { once: true });
    try {
      let value; // the slot's result, which run.result(value) sets
      const result = (v) => {
        const json = JSON.stringify(v) ?? "null"; // the handler may change v later
        if (Buffer.byteLength(json) > 65_536) throw new RangeError("result: want at most 64 KiB of JSON");
        value = JSON.parse(json) ?? undefined;
      };
      const payload = Buffer.from(d.payload).toString(), slot = { id: record.id, job: job.name, attempt: record.attempt, fence, node: this.node.name, payload };
      const output = await this.handlers[job.name]({ ...slot, json: () => jsonOf(payload), signal: controller.signal, result });
      return { output: headAndTail(outputOf(output), job.output ?? 4096), value };
    } catch (err) {
      return {
        error: flight.ending ?? textOf(err), permanent: err instanceof Permanent, retryAfter: delayOf(err),
        stopped: this.stopping && controller.signal.aborted, cancelled: flight.ending !== undefined, backoff,
      };
    } finally {
      clearTimeout(timer);
      this.node.signal.removeEventListener("abort", lost);
    }
  }
}
