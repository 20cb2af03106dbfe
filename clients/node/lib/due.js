// What a producer has to publish (docs/protocol.md, section 8). Pure.
//
// A position is {time, revision, registryTime}: every slot due up to time has been published by a producer that knew
// the registry up to revision. The watermark is a position, and each producer has its own after each round.
import { fromSeconds, parseDuration, toMs } from "./values.js";
import { formatMessage, laneOf } from "./message.js";
import { pauseAt } from "./definition.js";

const second = 1_000_000_000n;
export const late = 60_000; // ms after its due time from which a slot is late
const single = 1000;
const longAgo = -62_135_596_800; // the year 1

// due returns {messages, ranges}: the messages of the slots that are due by now and not covered by the position.
// Publish the ranges when all other messages are acknowledged.
export function due(position, entries, now, horizon, node) {
  const messages = [], ranges = [];
  for (const entry of entries) {
    const missed = [];
    for (const slot of slotsOf(position, entry, now)) {
      if (slot.late) missed.push(slot);
      else messages.push(...perShard(entry, node, slot));
    }
    missed.sort((a, b) => a.at - b.at);
    const older = missed.splice(0, Math.max(0, missed.length - single));
    const caught = caughtUp(entry, missed, now, horizon);
    for (const slot of missed) messages.push(...(caught.has(slot) ? perShard(entry, node, slot, { caughtUp: true }) : [message(entry, node, slot, { missed: 1 })]));
    if (older.length) ranges.push(message(entry, node, older[0], { missed: older.length, missedLast: fromSeconds(older.at(-1).at), range: true }));
  }
  return { messages, ranges };
}

// slotsOf yields the slots of an entry that are due by now. If the entry was removed, it yields only those that were
// due before that.
function* slotsOf(position, entry, now) {
  const seen = (instant) => position !== undefined && (entry.revision <= position.revision || (position.registryTime !== undefined && instant <= position.registryTime));
  for (const plan of entry.plans) {
    if (!plan.schedule) continue;
    const delay = plan.schedule.delay;
    const ended = entry.pauses.filter((p) => p.to !== undefined && p.to - BigInt(delay) * second > plan.from);
    // A slot that fell due in a pause, or after it, is covered only by a producer that knew the end of the pause.
    const covered = (dueAt) => seen(ended.findLast((p) => p.from < dueAt)?.to ?? plan.from) && dueAt <= position.time;
    let begin = plan.from;
    if (seen(plan.from)) {
      const unknown = ended.find((p) => !seen(p.to))?.from ?? position.time;
      const least = (unknown < position.time ? unknown : position.time) - BigInt(delay) * second;
      if (least > begin) begin = least;
    }
    for (let at = plan.schedule.next(floorSeconds(begin)); at !== undefined; at = plan.schedule.next(at)) {
      const instant = fromSeconds(at), dueAt = fromSeconds(at + delay);
      if (dueAt > now || (entry.ended !== undefined && dueAt > entry.ended) || (plan.to !== undefined && instant > plan.to)) break;
      if (instant <= plan.from || covered(dueAt)) continue;
      const pause = pauseAt(entry, dueAt);
      if (pause && pause.to === undefined) continue;
      yield { at, due: dueAt, shards: plan.plan.shards, late: pause !== undefined || toMs(now - dueAt) > late };
    }
  }
}

const floorSeconds = (ns) => Math.max(longAgo, Number(ns >= 0n ? ns / second : -((-ns + second - 1n) / second)));

// nextDue returns when the next slot of all entries falls due, or undefined if none will.
export function nextDue(entries, now) {
  let soonest;
  for (const entry of entries) {
    const { schedule } = entry.plans.at(-1);
    if (entry.paused) continue;
    const at = schedule.next(floorSeconds(now) - schedule.delay);
    if (at === undefined) continue;
    const dueAt = fromSeconds(at + schedule.delay);
    if (soonest === undefined || dueAt < soonest) soonest = dueAt;
  }
  return soonest;
}

function caughtUp(entry, missed, now, horizon) {
  const { job } = entry;
  const count = { latest: 1, all: job.catch_up_max, none: 0 }[job.catch_up];
  const within = Math.min(horizon, job.catch_up_within ? parseDuration(job.catch_up_within) : Infinity);
  const young = missed.filter((s) => toMs(now - fromSeconds(s.at)) <= within);
  return new Set(count ? young.slice(-count) : []);
}

// perShard returns the messages of a slot that is to run: one for each shard if its plan splits it.
function perShard(entry, node, slot, rest) {
  if (!slot.shards) return [message(entry, node, slot, rest)];
  return Array.from({ length: slot.shards }, (_, i) => message(entry, node, slot, { ...rest, split: { shard: i + 1, shards: slot.shards } }));
}

function message(entry, node, { at, due: dueAt }, { range, split, ...rest } = {}) {
  const slot = { job: entry.job.name, at, ...(range && { range }), ...split };
  const m = { slot, revision: entry.revision, node, due: dueAt, ...rest };
  return { queue: entry.job.queue, lane: laneOf(entry.job.queue, m), job: entry.job.name, headers: formatMessage(m), body: entry.payload };
}
