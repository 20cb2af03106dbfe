// Answers the questions of "cronce-lab conformance vectors" for this client: each line of standard input is a
// question, and each line of standard output an answer.
//
//   cronce-lab conformance vectors --cmd 'node clients/node/vectors.js'
import { createHash } from "node:crypto";
import { createInterface } from "node:readline";
import { cancelled, complete, decide, release } from "./lib/claim.js";
import { decodeAs } from "./lib/bounds.js";
import { BrokerClock } from "./lib/clock.js";
import { canonical, hashOfDefinition, parseEntry } from "./lib/definition.js";
import { due } from "./lib/due.js";
import { alertOf, chain } from "./lib/follow.js";
import { parseEntry as parseLineEntry } from "./lib/lines.js";
import { call, enter, isOver, leave, stood } from "./lib/lock.js";
import { callMessages, formatMessage, inBulk, parseMessage } from "./lib/message.js";
import { Invalid, parseSlot, slotID, slotKey } from "./lib/names.js";
import { challenge } from "./lib/node.js";
import { parseSchedule } from "./lib/schedule.js";
import { UnknownVersion, formatDuration, formatInstant, fromMs, fromSeconds, optional, parseDuration, parseInstant, rawMember } from "./lib/values.js";
import { cancelRequest } from "./lib/requests.js";

const me = "a-1-1-x";

// Left is the error of a question that this client does not answer, because it leaves the subject to others.
class Left extends Error {}

// refusable returns the answer, or says that the value in the question is invalid.
function refusable(answer) {
  try {
    return answer();
  } catch (err) {
    if (!(err instanceof Invalid)) throw err;
    return { refused: err instanceof UnknownVersion ? "version" : "invalid" };
  }
}

const format = (at) => (at === undefined ? undefined : formatInstant(at));
const entryOf = (raw) => parseEntry(rawMember(raw, "value"), Number(rawMember(raw, "revision")), parseInstant(JSON.parse(rawMember(raw, "time"))));
const messageOf = (headers, subject) => parseMessage((name) => headers[name] ?? "", subject);
const plain = ({ queue, headers, body }) => ({ queue, headers, ...(body && { body }) });

// answers has a function (ask, raw) => answer for each subject of the vectors. raw is the question as text.
const answers = {
  names({ id }) {
    if (!id) throw new Left("this client writes keys and reads none");
    return refusable(() => {
      const slot = parseSlot(id);
      const whole = slotID({ ...slot, shard: undefined, shards: undefined });
      return {
        key: slotKey(slot), job: slot.job, at: slot.at === undefined ? undefined : format(fromSeconds(slot.at)), token: slot.token, range: slot.range,
        shard: slot.shard, shards: slot.shards, trace_id: createHash("sha256").update(`cronce/${whole}`).digest("hex").slice(0, 32),
      };
    });
  },

  messages({ headers, subject }) {
    return refusable(() => {
      const m = messageOf(headers, subject);
      return {
        slot: slotID(m.slot), job_revision: m.revision, node: m.node, due: format(m.due), caught_up: m.caughtUp, chained: m.chained, event: m.event,
        backfill: m.backfill, missed: m.missed, missed_last: format(m.missedLast), offer: m.offer, impossible: m.refused, bulk: inBulk(m),
      };
    });
  },

  values({ kind, time }, raw) {
    if (kind === "event") throw new Left("this client reads no events");
    return refusable(() => {
      const text = rawMember(raw, "value");
      if (kind === "entry") throw new Left("this client passes over an entry that it cannot read, whatever is wrong with it");
      if (kind === "definition") parseEntry(text, 7, parseInstant(time ?? "2026-11-21T07:00:00Z"));
      else decodeAs(kind, text);
      return {};
    });
  },

  definitions(_, raw) {
    const job = rawMember(raw, "job");
    return { canonical: canonical(job), hash: hashOfDefinition(job) };
  },

  layout() {
    throw new Left("this client creates no streams");
  },

  registry() {
    throw new Left("this client writes no definitions");
  },

  schedules({ job, after, count }) {
    return refusable(() => {
      const schedule = parseSchedule(job.name, job.plan), slots = [];
      for (let at = schedule.next(Date.parse(after) / 1000); at !== undefined && slots.length < count; at = schedule.next(at)) {
        if (!schedule.includes(at)) throw new Error(`${format(fromSeconds(at))} is next and not included`);
        slots.push(format(fromSeconds(at)));
      }
      return { slots, delay: formatDuration(schedule.delay * 1000) };
    });
  },

  clocks({ heartbeats = [], at }) {
    const clock = new BrokerClock(), ms = (text) => Number(parseInstant(text)) / 1e6;
    for (const h of heartbeats ?? []) clock.observe(ms(h.sent), ms(h.acknowledged), ms(h.stamp));
    return { offset: formatDuration(clock.offset), error: formatDuration(clock.error(ms(at))) };
  },

  fences({ node, by, lease, now, value, revision, still, moved }) {
    const ask = (stored, silent) => challenge(node, by, stored && JSON.stringify(stored), parseDuration(lease), silent, parseInstant(now));
    const said = ({ dead, wait }) => ({ dead, wait: wait && formatDuration(wait) });
    const step = ask(value, parseDuration(still));
    if (!step.value) return said(step);
    const written = { at: revision, written: step.value };
    // If the write is refused, the stored value names the writer that was faster.
    return moved ? { ...said(ask(moved, 0)), ...written } : { dead: true, ...written };
  },

  producers({ now, horizon, clock_error, watermark: w }, raw) {
    const entry = entryOf(rawMember(raw, "definition"));
    const position = w && { time: parseInstant(w.time), revision: w.registry_revision, registryTime: optional(w.registry_time) };
    const certain = parseInstant(now) - fromMs(parseDuration(clock_error ?? "0s"));
    const { messages, ranges } = due(position, [entry], certain, parseDuration(horizon), me);
    const all = [...messages, ...ranges].map(plain), single = (m) => m.headers["Cronce-Missed"] === "1";
    if (all.length <= 10) return { messages: all };
    const missed = all.filter(single).map((m) => m.headers["Cronce-Slot"]);
    return { messages: all.filter((m) => !single(m)), missed_singly: { count: missed.length, first: missed[0], last: missed.at(-1) } };
  },

  claims: (ask, raw) => ({ steps: life(ask, raw) }),

  cancels(_, raw) {
    return refusable(() => {
      const { slot, fence, cause } = cancelRequest(rawMember(raw, "request"));
      return { key: slotKey(slot), fence, cause };
    });
  },

  shards() {
    throw new Left("this client gives shards of slots back");
  },

  chains({ headers, records }, raw) {
    return { messages: chain(entryOf(rawMember(raw, "definition")), records, messageOf(headers), me).map(plain) };
  },

  alerts({ record, revision }, raw) {
    const alert = alertOf(record, revision, entryOf(rawMember(raw, "definition")), me, "cronce");
    return alert ? { msg_id: alert.headers["Nats-Msg-Id"], event: JSON.parse(alert.body) } : {};
  },

  locks({ do: what, lock, slot, overlap, places, fresh, author, sequence, entry, record, now, horizon, clock_error, implausible }, raw) {
    const v = { now: now && parseInstant(now), horizon: parseDuration(horizon ?? "0s"), error: parseDuration(clock_error ?? "0s"), implausible };
    const read = entry && parseLineEntry(lock.job, rawMember(raw, "entry"), 1);
    switch (what) {
      case "enter": {
        const { kind, inWay, displaces, next } = enter(lock, { slot, overlap, places: places ?? 0, fresh, author });
        return { place: kind, in_way: inWay, displaces, next };
      }
      case "leave": return { next: leave(lock, slot.id, slot.node) };
      case "stood": return { next: stood(lock, sequence) };
      case "call": return { next: call(lock, read, v.now) };
      case "over": return { over: isOver(lock, read, record, overlap, v) };
    }
  },

  calls({ record, revision, chained }) {
    return { messages: callMessages(record, revision, me, chained).map(formatMessage) };
  },

  events() {
    throw new Left("this client takes no messages of streams");
  },

  sweeps() {
    throw new Left("this client does not sweep");
  },

  shares() {
    throw new Left("this client shares no work with other producers: it publishes everything");
  },
};

// without has the members of answers that this client does not compute.
const without = { messages: ["written", "traceparent"], values: ["unknown", "written"], producers: ["watermark_after"] };

// life carries out the steps of one slot, and returns an answer for each.
function life({ headers, queue, published, horizon, body, steps }, raw) {
  if (steps.some((s) => s.deleted)) throw new Left("this client gives back slots whose job was deleted after their first claim");
  const message = messageOf(headers);
  const definition = rawMember(raw, "definition"), entry = definition && entryOf(definition);
  const most = parseDuration(horizon), ledger = { revision: 0 }, claims = {};
  return steps.map((s) => {
    const now = parseInstant(s.now), claim = claims[s.node];
    const d = { message: { ...message, offer: s.offer ?? message.offer }, queue, published: parseInstant(published), payload: Buffer.from(body ?? ""), count: s.delivered };
    const v = {
      now, error: parseDuration(s.clock_error ?? "0s"), implausible: s.implausible, self: s.node, horizon: most, entry: s.deleted ? undefined : entry,
      place: s.place && { kind: s.place.place, inWay: s.place.in_way }, ownerDead: s.owner_dead, disowned: s.disowned, handles: !s.no_handler,
      ...(s.unread ? { revision: 0 } : ledger),
    };
    const answer = {};
    let record, at = v.revision;
    if (s.do === "decide") {
      const step = decide(d, v);
      Object.assign(answer, { action: step.do, delay: step.delay === undefined ? undefined : formatDuration(step.delay) });
      record = step.stored ? undefined : step.record;
    } else if (s.do === "complete") {
      const { retry_after, backoff, ...result } = s.result;
      if (retry_after) result.retryAfter = parseDuration(retry_after);
      [record, at] = [complete(claim.record, claim.fence, now, s.implausible ? Infinity : most, { ...result, backoff: parseDuration(backoff ?? "0s") }), claim.fence];
    } else if (s.do === "release") {
      [record, at] = [release(claim.record, now), claim.fence];
    } else {
      record = cancelled(d, v, cancelRequest(JSON.stringify({ ...s.request, v: 1, id: slotID(message.slot), fence: 1 })).cause);
    }
    if (!record) return answer;
    Object.assign(answer, { at, record, conflict: at !== ledger.revision });
    if (!answer.conflict) {
      Object.assign(ledger, { record, revision: s.wins });
      if (record.state === "running") claims[s.node] = { record, fence: s.wins };
    }
    return answer;
  });
}

for await (const line of createInterface({ input: process.stdin })) {
  const { case: id, about, ask } = JSON.parse(line);
  let answer;
  try {
    answer = { case: id, answer: answers[about](ask, rawMember(line, "ask")), without: without[about] };
  } catch (err) {
    if (!(err instanceof Left)) throw new Error(`${id}: ${err.stack}`);
    answer = { case: id, leave: err.message };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
