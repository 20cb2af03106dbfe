// The smallest worker that keeps every MUST of docs/protocol.md, as an example to port. It runs only slots of
// jobs with the overlap "allow" that need no more features. It leaves all others to other workers, as section 15
// of that page allows. It shares no code with lib. The labels in brackets are those of the page.
import { headers as newHeaders } from "@nats-io/transport-node";
import { jetstream } from "@nats-io/jetstream";
import { randomBytes } from "node:crypto";
import { uptime } from "node:os";

const final = new Set(["succeeded", "failed", "skipped", "missed", "expired", "cancelled"]);
const states = new Set([...final, "waiting", "running", "retrying"]);
const name64 = /^[A-Za-z0-9_-]{1,64}$/;
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const boot = () => uptime() * 1000; // a clock that counts suspend, in ms
const ms = (duration) => [...duration.matchAll(/([\d.]+)(ms|us|µs|ns|h|m|s)/g)].reduce((sum, [, n, unit]) => sum + n * { h: 3.6e6, m: 6e4, s: 1000, ms: 1, us: 1e-3, "µs": 1e-3, ns: 1e-6 }[unit], 0);

// A number of JavaScript has no more than 17 digits. So parse turns long ones into marked texts, and format writes these
// as they were: a member that this worker does not know keeps its value [V-3]. No text that arrives has the mark.
const mark = randomBytes(12).toString("hex");
const tokens = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g; // texts and numbers
const marked = (s) => (s[0] === '"' || (s.length < 16 && Number.isFinite(Number(s))) ? s : `"${mark}${s}"`);
const parse = (json) => JSON.parse(json) && JSON.parse(json.replace(tokens, marked)); // the first one refuses what is not JSON
const format = (value) => JSON.stringify(value).replaceAll(new RegExp(`"${mark}([^"]*)"`, "g"), "$1");
const iso = (at) => new Date(at).toISOString();

// run takes part in the fleet until the signal aborts: one incarnation after another [L-4].
export async function run(nc, { namespace = "cronce", name = "minimal", queues = ["default"], handlers, signal, clockOffset = 0, log = () => {} }) {
  const store = new Store(nc, namespace);
  const { value: settings } = await store.read("state", "settings");
  if (!settings) throw new Error(`namespace ${namespace} has no settings: run "cronce setup"`); // a node need not create a namespace
  const inflight = new Map(); // the slots in flight of all incarnations, by their keys
  while (!signal.aborted) {
    const node = new Node(store, { inflight, name, queues, handlers, clockOffset, lease: ms(settings.lease), horizon: ms(settings.horizon), log });
    await node.live(signal);
    await pause(100);
  }
}

export class Store {
  constructor(nc, namespace) {
    Object.assign(this, { nc, namespace, writes: 0, prefix: randomBytes(6).toString("hex") });
  }

  // read reads a key at the stream's leader [W-4]: {revision, value, time}. A key that does not exist or was deleted
  // has no value. read throws if the value cannot be decoded [V-1], so that no decision depends on it [V-2].
  async read(bucket, key) {
    const { nc, namespace: ns } = this;
    const answer = (await nc.request(`$JS.API.STREAM.MSG.GET.KV_${ns}_${bucket}`, JSON.stringify({ last_by_subj: `$KV.${ns}_${bucket}.${key}` }), { timeout: 2000 })).json();
    if (answer.error?.err_code === 10037) return { revision: 0 };
    if (answer.error) throw new Error(`read ${key}: ${answer.error.description}`);
    const { seq, time, data, hdrs } = answer.message, head = Buffer.from(hdrs ?? "", "base64").toString();
    if (/^(KV-Operation: *(DEL|PURGE)|Nats-Marker-Reason:)/m.test(head)) return { revision: seq };
    const value = parse(Buffer.from(data ?? "", "base64").toString());
    if (value?.v !== 1) throw new Error(`read ${key}: format version ${value?.v}`);
    bounded(bucket, value); // [V-4]
    return { revision: seq, value, time };
  }

  // write stores a value if revision is the last one of its key [W-1]. It returns the new revision, or undefined if
  // another write was first. It repeats the same bytes until a copy is answered [W-3]. If giveUp returns true first,
  // it throws: then the result is not known [W-5].
  async write(bucket, key, value, revision, giveUp) {
    const nonce = `${this.prefix}/${++this.writes}`, bytes = format({ ...value, nonce });
    const head = newHeaders();
    head.set("Nats-Expected-Last-Subject-Sequence", String(revision));
    head.set("Nats-Expected-Stream", `KV_${this.namespace}_${bucket}`);
    let open = false; // a copy was not answered
    for (let n = 0; !giveUp(); n++) {
      if (n > 0) await pause(Math.min(50 * n, 500));
      const answer = await this.nc.request(`$KV.${this.namespace}_${bucket}.${key}`, bytes, { headers: head, timeout: 1000 }).then((m) => m.json(), () => undefined); // [W-2]
      if (answer?.seq) return answer.seq;
      const code = answer?.error.err_code;
      if (code === 10071 || code === 10164) {
        const found = await this.read(bucket, key).catch(() => undefined);
        if (found?.value?.nonce === nonce) return found.revision;
        if (found?.revision > revision || (found?.revision === 0 && revision > 0 && code === 10071)) return undefined;
      } else if (code && ![10004, 10008, 10009, 10075, 10077, 10118, 10158, 10163, 10194].includes(code)) {
        if (!open) throw new Error(`write ${key}: ${answer.error.description}`);
      }
      open ||= code === undefined || code !== 10071;
    }
    throw new Error(`write ${key}: not answered`);
  }
}

// bounded throws if a member with which a worker computes is out of bounds.
function bounded(bucket, v) {
  const refuse = (why) => { throw new Error(`a value of ${bucket}: ${why}`); };
  const instant = (text) => text === undefined || text === null || !Number.isNaN(instantOf(text)) || refuse(`instant ${text}`);
  const count = (n, most) => n === undefined || n === null || (Number.isInteger(n) && n >= 0 && n <= most) || refuse(`number ${n}`);
  if (bucket === "nodes") {
    if (!["alive", "stopped", "fenced"].includes(v.state)) refuse(`state ${v.state}`);
    if (ms(v.lease ?? "0s") > 864e5) refuse(`lease ${v.lease}`);
  }
  if (bucket !== "ledger") return;
  if (!states.has(v.state)) refuse(`state ${v.state}`);
  [v.published, v.due, v.retry_at, v.finished].forEach(instant);
  [v.attempt, v.max_attempts].forEach((n) => count(n, 1e6));
  if (Buffer.byteLength(v.payload ?? "", "base64") > 262_144) refuse("payload");
  if (v.attempts && !Array.isArray(v.attempts)) refuse("attempts");
}

// Node is one incarnation. Its name is never used again.
export class Node {
  constructor(store, options) {
    Object.assign(this, options, { store, started: Date.now() + options.clockOffset, revision: 0, trustedUntil: -Infinity, seen: new Map(), after: new Map() });
    this.name = `${options.name}-${process.pid}-${Date.now().toString(36)}-${randomBytes(4).toString("hex")}`;
    this.ended = new AbortController();
  }

  // trusted reports whether no other node can have declared this one dead. It is called right before the worker
  // claims, starts, completes or answers anything [L-3].
  trusted() {
    if (boot() >= this.trustedUntil && this.revision > 0) this.end("its trust has lapsed");
    return this.revision > 0 && !this.ended.signal.aborted;
  }

  end(why) {
    if (!this.ended.signal.aborted) this.ended.abort(Object.assign(new Error(`node ${this.name}: ${why}`), { code: "LEASE_LOST" }));
  }

  // own is the time of this machine's clock, now the estimated time of the broker's [L-8], and sure a time that the
  // broker's clock has certainly reached. All are in ms.
  own() { return Date.now() + this.clockOffset; }
  now() { return this.own() + this.offset; }
  sure() { return this.now() - this.error; }
  get implausible() { return Math.abs(this.offset) > 3.6e6; }

  async live(signal) {
    const { store, name } = this, { nc, namespace: ns } = store;
    const stop = AbortSignal.any([signal, this.ended.signal]);
    await this.beat();
    const beats = (async () => { while (!this.ended.signal.aborted) { await pause(this.lease / 10); if (this.trusted()) await this.beat(); } })();
    while (!this.ended.signal.aborted && this.offset === undefined) await pause(20);
    const watch = setInterval(() => this.trusted(), 50);
    const asked = nc.subscribe(`${ns}.node.${name}.cancel`, { callback: (_, m) => m.respond(JSON.stringify(this.answer(m))) }); // [O-2]
    if (this.trusted()) this.log(`node ${name} takes part`);
    const handlers = { v: 1, node: name, handlers: Object.keys(this.handlers) };
    store.write("state", `handlers.${name}`, handlers, 0, () => this.ended.signal.aborted).catch((err) => this.log(`its handlers: ${err.message}`)); // others report jobs without one
    this.follow(stop).catch((err) => this.end(err.message));
    await Promise.all(this.queues.flatMap((queue) => [this.serve(queue, queue, stop), this.serve(queue, `${queue}=bulk`, stop)]));
    for (let n = 0; n < 100 && this.inflight.size > 0 && !this.ended.signal.aborted; n++) await pause(20); // running handlers may finish
    for (const flight of this.inflight.values()) flight.controller.abort(new Error("the worker stops"));
    for (let n = 0; n < 50 && this.inflight.size > 0; n++) await pause(20);
    asked.unsubscribe();
    clearInterval(watch);
    const idle = this.trusted() && this.inflight.size === 0;
    this.end("stopped");
    await beats;
    const limit = boot() + 2000;
    if (idle) await this.put("stopped", () => boot() >= limit).catch(() => {}); // [L-7]
  }

  // beat writes the heartbeat at the node's last revision [L-1], and estimates the broker's clock from it.
  async beat() {
    const sent = boot(), before = this.own();
    const over = () => this.ended.signal.aborted || boot() >= sent + 0.75 * this.lease; // no copy follows once trust has lapsed [L-4]
    const won = await this.put("alive", over).catch(() => undefined);
    const after = this.own() + 1;
    if (won !== undefined) this.revision = won; // also of a node that stops: it writes "stopped" at this revision
    if (this.ended.signal.aborted) return;
    if (won === undefined) return this.end("it was fenced, or its heartbeat was not answered"); // [L-2]
    if (boot() >= sent + 0.75 * this.lease) return this.end("its heartbeat came too late");
    this.trustedUntil = sent + 0.75 * this.lease;
    // The next heartbeat does not wait for this second answer.
    void this.store.read("nodes", this.name).catch(() => undefined).then((found) => {
      if (found?.revision === won && !(this.error < (after - before) / 2)) [this.offset, this.error] = [Date.parse(found.time) - (before + after) / 2, (after - before) / 2];
      else if (this.error !== undefined) this.error += this.lease / 10 * 0.0005;
    });
  }

  put(state, over) {
    const value = {
      v: 1, node: this.name, state, started: iso(this.started), lease: `${this.lease}ms`, producer: false, worker: true, queues: this.queues,
      running: this.inflight.size, clock_offset: `${Math.round(this.offset ?? 0)}ms`, clock_error: `${Math.ceil(this.error ?? 0)}ms`,
      tzdata: process.versions.tz, version: "minimal",
    };
    return this.store.write("nodes", this.name, value, this.revision, over);
  }

  // dead reports whether another node is dead. If this node has seen no heartbeat of it for a lease, dead fences it
  // with a write at the revision that was seen [L-5]. It does not change the record of a node that has ended [L-6].
  async dead(name) {
    const { value, revision } = await this.store.read("nodes", name);
    if (value && value.node !== name) throw new Error(`the record of node ${name} names ${value.node}`); // [M-2]
    if (value && value.state !== "alive") return true;
    const seen = this.seen.get(name);
    if (seen?.revision !== revision) this.seen.set(name, { revision, since: performance.now() });
    if (seen?.revision !== revision || performance.now() - seen.since < Math.max(this.lease, ms(value?.lease ?? "0s"))) return false;
    const missing = { v: 1, node: name, started: "0001-01-01T00:00:00Z", lease: "0s", producer: false, worker: false, running: 0, clock_offset: "0s", clock_error: "0s", tzdata: "", version: "" };
    const fenced = { ...(value ?? missing), state: "fenced", fenced_by: this.name, fenced_at: iso(this.now()) };
    return (await this.store.write("nodes", name, fenced, revision, () => !this.trusted())) !== undefined;
  }

  // follow keeps track of which jobs come after which. This worker cannot publish the slots of jobs that come after
  // others. So it gives back each slot whose job has such jobs [F-1], and every slot until it has read the registry.
  async follow(stop) {
    const { nc, namespace: ns } = this.store, { state } = (await nc.request(`$JS.API.STREAM.INFO.KV_${ns}_jobs`, "", { timeout: 2000 })).json();
    const consumer = await jetstream(nc).consumers.get(`KV_${ns}_jobs`, { filter_subjects: [`$KV.${ns}_jobs.>`], deliver_policy: "last_per_subject" });
    const messages = await consumer.consume({ expires: 5000 });
    stop.addEventListener("abort", () => messages.stop(), { once: true });
    this.known = state.messages === 0;
    for await (const m of messages) {
      let after = [];
      try { after = JSON.parse(m.string()).job.plan.after ?? []; } catch { /* deleted, or not to be read */ }
      this.after.set(m.subject, after);
      this.known ||= m.info.pending === 0;
    }
  }

  // create creates the consumers of a queue that are missing, and changes none [B-3]. Another worker of the queue
  // must read from the consumer of the timers [B-2].
  async create(queue) {
    const { nc, namespace: ns } = this.store;
    for (const [stream, lane, subject] of [[`${ns}_slots`, queue, `${ns}.slot.${queue}.>`], [`${ns}_slots`, `${queue}=bulk`, `${ns}.slot.${queue}=bulk.>`], [`${ns}_timers`, queue, `${ns}.timer.due.${queue}.>`]]) {
      const config = {
        durable_name: lane, filter_subject: subject, deliver_policy: "all", ack_policy: "explicit", ack_wait: this.lease * 1e6, max_deliver: -1,
        max_ack_pending: 1_000_000, priority_policy: "prioritized", priority_groups: ["workers"],
      };
      await nc.request(`$JS.API.CONSUMER.CREATE.${stream}.${lane}`, JSON.stringify({ stream_name: stream, config, action: "create" }), { timeout: 2000 });
    }
  }

  // serve receives messages of a lane of a queue [B-2]. It requests none while sixteen slots are in flight.
  async serve(queue, lane, stop) {
    while (!stop.aborted) {
      try {
        await this.create(queue);
        const consumer = await jetstream(this.store.nc).consumers.get(`${this.store.namespace}_slots`, lane);
        const grouped = (await consumer.info()).config.priority_groups?.length ? { group: "workers", priority: 0 } : {};
        while (!stop.aborted) {
          const free = 16 - this.inflight.size;
          if (free < 1 || !this.trusted()) { await pause(20); continue; }
          for await (const m of await consumer.fetch({ max_messages: free, expires: 1000, ...grouped })) void this.take(m, queue);
        }
      } catch (err) {
        this.log(`queue ${queue}: ${err.message}`);
        await pause(500);
      }
    }
  }

  // take processes one delivery. It answers once [C-9], and not at all if the slot is in flight already [C-1], or if
  // its claim or the node's trust was lost [C-11].
  async take(m, queue) {
    if (!this.trusted()) return undefined; // the process may have slept since the message arrived
    const slot = slotOf(m);
    if (slot === undefined) return m.term("it contradicts itself"); // [M-1]
    if (slot === null) { // [M-3]; a newer program may be able to read it, until it is old
      const old = !this.implausible && this.sure() - Number(m.timestampNanos / 1000000n) > this.horizon;
      return old ? m.term("it cannot be read") : m.nak(60_000);
    }
    const inflight = this.inflight.get(slot.key);
    if (inflight) return inflight.node === this.name ? undefined : m.nak(1000); // an older incarnation still runs it
    const flight = { node: this.name, controller: new AbortController() };
    this.inflight.set(slot.key, flight);
    const progress = setInterval(() => { if (this.trusted()) m.working(); }, this.lease / 3);
    let answer;
    try {
      answer = await this.decide(m, queue, slot, flight);
    } catch (err) { // a value was not read, or the result of a write is not known
      this.log(`slot ${slot.id}: ${err.message}`);
      answer = { nak: 1000 };
    }
    clearInterval(progress);
    this.inflight.delete(slot.key);
    if (answer && this.trusted()) answer.ack ? m.ack() : m.nak(Math.max(1, Math.ceil(answer.nak)));
  }

  // decide applies the table of section 11 [C-2].
  async decide(m, queue, slot, flight) {
    const { job } = slot, give = { nak: Math.min(200 * 2 ** Math.min(Math.floor((m.info.deliveryCount - 1) / 4), 9), 60_000) };
    let ownerDead, disowned;
    while (this.trusted()) {
      const { value: record, revision } = await this.store.read("ledger", slot.key);
      if (record && record.id !== slot.id) return give; // [M-2]
      if (slot.shard || slot.range) return give; // [O-1], [C-13]; with an outcome too, because its worker must conclude the whole slot
      if (record && final.has(record.state)) return { ack: true }; // [K-1], [C-10]
      if (record?.shards || !Object.hasOwn(this.handlers, job)) return give; // [O-1], [C-12]
      const entry = await this.store.read("jobs", job);
      if (!entry.value || !this.supports(entry.value, slot, entry.revision)) return give; // [M-2], [V-6], [C-4], [X-1], [F-1]
      const { job: definition } = entry.value;
      const published = Math.min(Number(m.timestampNanos / 1000000n), record?.published ? Date.parse(record.published) : Infinity);
      const age = this.sure() - (slot.at ?? published), old = age > this.horizon && !this.implausible;
      if (age > this.horizon && this.implausible) return { nak: 30_000 }; // [C-3]
      if (!record && slot.due > Number(m.timestampNanos / 1000000n) && slot.due > this.sure()) return { nak: Math.min(slot.due - this.sure(), 3.6e6) };
      let next = record ?? {
        v: 1, id: slot.id, queue, attempt: 0, job_revision: slot.revision || undefined, due: slot.due && iso(slot.due), published: nanos(m.timestampNanos), publisher: slot.node || undefined,
        payload: slot.at === undefined && m.data.length ? Buffer.from(m.data).toString("base64") : undefined,
      };
      let attempt = (next.attempt ?? 0) + 1;
      if (record?.state === "retrying") {
        const wait = Date.parse(record.retry_at) - this.now();
        if (wait > 0 && !old) return { nak: Math.min(wait, 3.6e6) };
      } else if (record?.state === "running" && record.node !== this.name) { // [K-2]
        if (ownerDead !== record.node && disowned !== revision) {
          if (await this.dead(record.node)) ownerDead = record.node;
          else if ((await this.ask(record, revision)) === false) disowned = revision; // [C-14]
          else return { nak: 500 };
          continue;
        }
        next = closed(next, revision, this.now(), `worker ${record.node} ${disowned ? "does not hold its claim" : "died"}`);
        if (record.attempt >= (record.max_attempts ?? 0)) return this.finish(slot, { ...next, state: "failed" }, revision, next.attempts.at(-1)?.error ?? "its worker died");
      } else if (record?.state === "running") { // claimed by this node, which never started its handler
        attempt = record.attempt;
        next.attempts = record.attempts.slice(0, -1);
      }
      if (old) return this.finish(slot, { ...next, state: record && !(record.state === "waiting" && !record.attempts?.length) ? "failed" : "expired" }, revision, "older than the horizon");
      const { retry_at, error, output, result, on_time, ...kept } = next; // unknown members stay [V-3]
      if (output && kept.attempts?.length) kept.attempts = kept.attempts.with(-1, { ...kept.attempts.at(-1), output });
      const claim = {
        ...kept, state: "running", attempt, node: this.name, max_attempts: kept.max_attempts || definition.attempts || 3,
        attempts: [...(kept.attempts ?? []), { attempt, node: this.name, started: iso(this.now()) }].slice(-200),
      };
      const fence = await this.store.write("ledger", slot.key, claim, revision, () => !this.trusted());
      if (fence !== undefined) return this.attempt(m, slot, flight, claim, fence, definition); // else lost: read again, and decide again
    }
    return undefined;
  }

  // supports reports whether this worker may run the slot. It must not if the job, or a plan, has members that this
  // worker does not know.
  supports({ job: definition, past = [] }, slot, revision) {
    const known = ["name", "queue", "payload", "timeout", "attempts", "backoff", "max_backoff", "overlap", "on_lease_lost", "catch_up", "catch_up_within", "catch_up_max", "output", "plan"];
    const plan = ["schedule", "timezone", "spread", "from", "until", "exclude", "dst_gap", "dst_overlap"];
    const foreign = [definition.plan, ...past.map((p) => p.plan)].some((p) => !p || Object.keys(p).some((k) => !plan.includes(k)));
    const followed = !this.known || [...this.after.values()].some((jobs) => jobs.includes(slot.job));
    return !followed && definition.name === slot.job && definition.overlap === "allow" && !foreign && Object.keys(definition).every((k) => known.includes(k)) &&
      !slot.special && revision >= slot.revision && (slot.at === undefined || revision === slot.revision);
  }

  // attempt runs the handler of a won claim [C-5], and completes at the claim's revision [C-6].
  async attempt(m, slot, flight, claim, fence, definition) {
    if (!this.trusted()) return undefined;
    Object.assign(flight, { id: slot.id, fence });
    const limit = definition.timeout ? [AbortSignal.timeout(Math.min(Math.ceil(ms(definition.timeout)), 2 ** 31 - 1))] : []; // a longer timer would fire at once
    const signal = AbortSignal.any([flight.controller.signal, this.ended.signal, ...limit]);
    const { end, ...result } = await Promise.resolve()
      .then(() => this.handlers[slot.job]({ id: slot.id, job: slot.job, attempt: claim.attempt, fence, node: this.name, payload: Buffer.from(m.data).toString(), signal, result() {} }))
      .then((output) => ({ end: "succeeded", output: output && String(output).slice(0, 1000) }), (err) => ({ end: "failed", error: String(err?.message || "failed"), permanent: err?.name === "Permanent" }));
    flight.returned = true;
    const record = closed(claim, fence, this.now(), result.error);
    if (result.output) record.output = result.output;
    if (end === "succeeded") return this.finish(slot, { ...record, state: "succeeded" }, fence);
    if (flight.ending) return this.finish(slot, { ...record, state: "cancelled" }, fence, flight.ending); // [C-7]
    const backoff = Math.min(ms(definition.backoff ?? "1s") * 2 ** (claim.attempt - 1), ms(definition.max_backoff ?? "1m")), retry = this.now() + backoff;
    const spent = result.permanent || claim.attempt >= claim.max_attempts || (!this.implausible && retry - (slot.at ?? Date.parse(claim.published ?? "0001-01-01")) > this.horizon);
    if (spent) return this.finish(slot, { ...record, state: "failed" }, fence, result.error);
    const won = await this.complete(slot, { ...record, state: "retrying", error: result.error.slice(0, 2000), retry_at: iso(retry) }, fence);
    return won ? { nak: backoff } : undefined;
  }

  // finish writes the outcome. The message may be acked only after that [C-10].
  async finish(slot, { retry_at, ...record }, revision, error) {
    const outcome = { ...record, node: this.name, finished: iso(this.now()), ...(error && { error: error.slice(0, 2000) }) };
    return (await this.complete(slot, outcome, revision)) ? { ack: true } : undefined;
  }

  // complete repeats a write that the server refuses: if it gave up, the attempt would start again [C-15].
  async complete({ key }, record, revision) {
    for (; this.trusted(); await pause(500)) {
      const wrote = await this.store.write("ledger", key, record, revision, () => !this.trusted()).then((won) => ({ won }), (err) => this.log(err.message));
      if (wrote) return wrote.won;
    }
  }

  // ask asks a node whether it holds a claim. Without an answer, it returns undefined.
  async ask({ id, node }, revision) {
    const request = JSON.stringify({ v: 1, id, claim: revision });
    const answer = await this.store.nc.request(`${this.store.namespace}.node.${node}.cancel`, request, { timeout: 1000 }).then((m) => m.json(), () => undefined);
    return answer?.v === 1 && !answer.error ? answer.holds : undefined;
  }

  // answer answers a request to this node: whether it holds a claim [C-8], or to end one attempt [C-7].
  answer(m) {
    try {
      const { v, id, claim, fence, by, replaced } = m.json();
      const slot = slotKey(id);
      if (v !== 1 || !slot || !(claim || fence)) return { v: 1, ending: false, error: "want v 1, the ID of a slot, and its fence" };
      const flight = this.inflight.get(slot.key);
      if (claim) return this.trusted() ? { v: 1, holds: flight !== undefined } : { v: 1, error: "its trust has lapsed" };
      if (!flight || flight.fence !== fence || flight.returned) return { v: 1, ending: false };
      flight.ending = `${replaced ? "replaced" : "cancelled"} by ${Buffer.from(String(by ?? "").replace(/\p{C}/gu, "")).subarray(0, 256) || "nobody knows"}`;
      flight.controller.abort(new Error(flight.ending));
      return { v: 1, ending: true };
    } catch (err) {
      return { v: 1, ending: false, error: err.message };
    }
  }
}

// closed returns the record with its last attempt ended.
function closed(record, fence, now, error) {
  const attempts = [...(record.attempts ?? [])], last = attempts.at(-1);
  if (last && !last.finished) attempts[attempts.length - 1] = { ...last, fence, finished: iso(now), ...(error && { error: error.slice(0, 2000) }) };
  return { ...record, attempts };
}

const nanos = (ns) => iso(Number(ns / 1000000n)).slice(0, -1) + String(ns % 1000000n).padStart(6, "0") + "Z";

// instantOf returns NaN for a text that is not RFC 3339 [M-3]. Date.parse alone accepts "2026-11-21" and February 30.
const instantOf = (text) => (/^\d{4}-.{14}(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/.test(text) && new Date(`${text.slice(0, 19)}Z`).toJSON()?.startsWith(text.slice(0, 19)) ? Date.parse(text) : NaN);

// slotKey reads the ID of a planned slot, a triggered run, or a shard of one. It accepts only the canonical spelling [N-1].
function slotKey(id) {
  const [, job, rest, shard] = /^([A-Za-z0-9_-]{1,64}):(.*?)(#\d+of\d+)?$/s.exec(id) ?? [];
  if (!job) return undefined;
  const end = shard ? `.${shard.slice(1)}` : "";
  if (rest.startsWith("@")) {
    const token = rest.slice(1), bytes = Buffer.from(token);
    if (bytes.length < 1 || bytes.length > 128 || /[\0-\x1f\x7f]|^[\p{White_Space}\uFEFF]|[\p{White_Space}\uFEFF]$|\/r[0-9]+$/u.test(token)) return undefined;
    const escaped = [...bytes].map((b) => (/[A-Za-z0-9_-]/.test(String.fromCharCode(b)) ? String.fromCharCode(b) : `=${b.toString(16).toUpperCase().padStart(2, "0")}`)).join("");
    return { id, job, shard, key: `${job}.t.${escaped}${end}` };
  }
  const at = Date.parse(rest);
  if (Number.isNaN(at) || iso(at).replace(".000Z", "Z") !== rest) return undefined; // also for a range, which is left to others
  return { id, job, shard, at, key: `${job}.${rest.replace(/[-:]/g, "")}${end}` };
}

// slotOf reads a message: undefined if it contradicts itself, null if it cannot be read.
function slotOf(m) {
  const get = (name) => m.headers?.get(name) ?? "", sent = get("Nats-Msg-Id").replace(/\/r[0-9]+$/, "");
  const id = get("Cronce-Slot") || sent, slot = slotKey(id) ?? (/^[^:]*:m\./.test(id) && { id, job: id.split(":")[0], key: id, range: true });
  if (!slot) return null;
  if ((sent && sent !== id) || m.subject.split(".").at(-1) !== slot.job) return undefined;
  const [, ns] = /^([^.]+)\.timer\.due\./.exec(m.subject) ?? [];
  if (ns && (slot.at !== undefined || slot.range || get("Nats-Scheduler") !== `${ns}.timer.set.${slot.key.replace(".t.", ".")}`)) return undefined; // another timer fired it
  if (!name64.test(slot.job) || !/^\d*$/.test(get("Cronce-Job-Revision"))) return null;
  const due = get("Cronce-Due") ? instantOf(get("Cronce-Due")) : slot.at;
  if (Number.isNaN(due)) return null;
  const special = ["Cronce-Missed", "Cronce-Refused", "Cronce-Chained", "Cronce-Event"].some((name) => get(name) !== "");
  return { ...slot, revision: Number(get("Cronce-Job-Revision") || 0), node: Buffer.from(get("Cronce-Node")).subarray(0, 256).toString().replace(/\uFFFD+$/, ""), due: due < slot.at ? slot.at : due, special };
}
