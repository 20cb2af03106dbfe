// What a worker does with a delivered slot, and the slot's record after an attempt (docs/protocol.md, section
// 11). Pure: the functions only propose records, and the write at a revision decides.
//
// A delivery is {message, queue, published, count, payload}. A view is {now, error, implausible, self, horizon,
// record, revision, ownerDead, disowned, entry, handles, place}. error bounds the error of now, in ms.
// implausible means that now is certainly wrong. entry is undefined if the job was deleted. place is the lock's
// answer (lock.js).
import { clip as cut } from "./bounds.js";
import { parseSlot, slotID } from "./names.js";
import { encode, formatDuration, formatInstant, fromMs, fromSeconds, optional, parseDuration, parseInstant, toMs } from "./values.js";
import { guarded, pauseAt, planAt } from "./definition.js";

const final = new Set(["succeeded", "failed", "skipped", "missed", "expired", "cancelled"]);
const mostPayload = 262_144, mostClaims = 1_000_000;
export const isFinal = (record) => final.has(record.state);

// decide returns {do: "ack" | "later" | "prove" | "enter" | "stand" | "start" | "end", delay, record, stored}. stored says of
// the record of a slot that is to stand in its job's line that the ledger has it.
export function decide(d, v) {
  const record = v.record;
  if (!record) return first(d, v);
  // The worker that acks a shard must conclude the whole slot first, which this program leaves to others.
  if (isFinal(record)) return d.message.slot.shards ? unhandled(d) : { do: "ack" };
  if (record.shards) return unhandled(d); // the whole of a split slot, which is left to others
  if (record.state === "waiting") return called(d, v);
  if (record.state === "retrying") return retry(d, v);
  if (record.node === v.self) return adopt(d, v);
  return v.ownerDead || v.disowned ? takeOver(d, v) : { do: "prove" };
}

// believed returns a message without what it says and cannot be true, as any login could otherwise end planned slots that
// may publish slots of the job. A producer leaves out a planned slot a minute after its due time at the earliest, or
// because of a pause, and refuses none; a slot follows from no other if its job does not; and it is due when its plan says.
// A message that was stored too early to be left out is doubted: the plan and the pauses decide, as if it named no
// definition.
function believed({ message, published }, entry) {
  const m = { ...message }, { slot } = m, planned = slot.token === undefined && !slot.range;
  const at = slot.at === undefined ? undefined : fromSeconds(slot.at), plan = planned && entry && planAt(entry, at);
  if (planned) m.refused = "";
  if (planned && m.chained && entry && !entry.job.plan.after?.length && !plan?.plan.after?.length) {
    Object.assign(m, { chained: false, revision: 0, due: m.due > at ? m.due : at });
  }
  if (planned && !m.chained && published < m.due && m.due > at && plan?.schedule) {
    const due = at + fromSeconds(plan.schedule.delay);
    if (due < m.due) m.due = due;
  }
  const tooEarly = at === undefined ? !m.chained : published < (m.chained ? at : m.due + fromMs(30_000));
  if (m.missed > 0 && !slot.range && tooEarly) Object.assign(m, { doubted: true, missed: 0, revision: 0 });
  return m;
}

// isRefused reports whether the run cannot start: a message of a stream that is too large for a payload started it, or a
// sweep has found that its message is lost.
const isRefused = (m, v) => Boolean(m.refused && (m.event ? v.entry && (planAt(v.entry, m.due) ?? v.entry.plans[0]).plan.on : m.offer > 0));

// needsDefinition reports whether the decision about a slot depends on its job's definition. If not, the worker decides
// even if the definition cannot be read.
export const needsDefinition = (d, v) => !(v.record && isFinal(v.record)) && !tooOld(d, v) && Boolean(v.record || needed(believed(d, v.entry)));
const needed = (m) => !leftOut(m) && (!m.refused || m.event);

// leftOut reports whether the slot is only recorded and never runs. That holds for every range, even if its
// message does not say how many slots it has.
const leftOut = (m) => m.missed > 0 || m.slot.range;

function first(d, v) {
  const m = believed(d, v.entry);
  d = { ...d, message: m };
  const wait = early(d, v);
  if (wait > 0 && (m.slot.range || !tooOld(d, v))) return { do: "later", delay: Math.min(wait, 3_600_000) };
  if (leftOut(m) && m.chained) return end(d, v, "missed", "its turn came while its job was paused");
  if (leftOut(m)) return end(d, v, "missed", "not published in time, and left out by the catch-up policy");
  if (isRefused(m, v)) return end(d, v, "failed", m.refused);
  if (tooOld(d, v)) return aged(d, v, "expired", `older than the horizon of ${formatDuration(v.horizon)}`);
  if (d.payload?.length > mostPayload) return end(d, v, "cancelled", `payload of ${d.payload.length} bytes: at most ${mostPayload}`);
  if (!v.entry) return end(d, v, "cancelled", "job deleted");
  if (m.doubted && ofPause(m, v.entry)) return end(d, v, "missed", "fell due while its job was paused");
  if (uncomputed(m, v.entry)) return unhandled(d); // another program may be able to compute the past plan
  if (splitOtherwise(m, v.entry)) return { do: "ack" }; // the shards that the plan wants have messages of their own
  if (!belongs(m, v.entry)) return end(d, v, "cancelled", "definition changed");
  if (splits(m, v.entry)) return unhandled(d); // left to a worker that supports shards
  if (ofPause(m, v.entry)) return end(d, v, "missed", "fell due while its job was paused");
  if (pastDeadline(d, v)) return aged(d, v, "expired", `not started within its deadline of ${v.entry.job.deadline}`);
  return v.handles ? claim(d, v, 1) : unhandled(d);
}

// adopt decides about a claim of this node that is not in flight: its handler was never started.
function adopt(d, v) {
  const released = release(v.record, v.now);
  if (tooOld(d, v) || startsTooLate(released, v)) return retry(d, { ...v, record: released });
  return v.handles ? claim(d, v, v.record.attempt) : unhandled(d);
}

const startsTooLate = (r, v) => r.attempt === 0 && r.start_by !== undefined && certain(v) > parseInstant(r.start_by);

// waitedTooLong reports whether a slot that stands in a line is too old to be started.
export const waitedTooLong = (record, v) => !v.implausible && (toMs(certain(v) - begunBy(record)) > v.horizon || startsTooLate(record, v));

// called decides about a slot that has stood in its job's line. Before, it had passed the checks of first.
function called(d, v) {
  const { record } = v, tried = (record.attempts ?? []).length > 0;
  if (tooOld(d, v)) return aged(d, v, tried ? "failed" : "expired", `older than the horizon of ${formatDuration(v.horizon)}`);
  if (!v.entry && !tried) return end(d, v, "cancelled", "job deleted");
  if (startsTooLate(record, v)) return aged(d, v, "expired", "not started within its deadline");
  return v.handles ? claim(d, v, record.attempt + 1) : unhandled(d);
}

function retry(d, v) {
  const wait = untilRetry(v);
  if (tooOld(d, v)) return aged(d, v, "failed", `retries end at the horizon of ${formatDuration(v.horizon)}; last error: ${v.record.error}`);
  if (v.record.attempt >= mostClaims) return end(d, v, "failed", v.record.error + spent(v.record));
  if (startsTooLate(v.record, v)) return aged(d, v, "expired", "not started within its deadline");
  if (wait > 0) return { do: "later", delay: wait };
  return v.handles ? claim(d, v, v.record.attempt + 1) : unhandled(d);
}

// untilRetry returns how many ms the slot still waits for its next attempt. If the clock shows more than a minute
// before the end of the last one, it was set back, and the slot does not wait.
function untilRetry({ record, now }) {
  const ended = lastEnd(record);
  return ended && toMs(ended - now) > 60_000 ? 0 : retryWait(record, now);
}

// retryWait returns the delay in ms with which the message of a slot is given back that waits for its next attempt: at
// most an hour, and at most the delay that was set when the last attempt ended, even if the clock was changed since.
export function retryWait(record, now) {
  if (!record.retry_at) return 0;
  const at = parseInstant(record.retry_at), ended = lastEnd(record);
  return Math.min(toMs(at - now), 3_600_000, ended ? toMs(at - ended) : Infinity);
}

const lastEnd = ({ attempts }) => optional(attempts?.at(-1)?.finished);

function takeOver(d, v) {
  const record = died(v);
  v = { ...v, record };
  if (record.attempt >= Math.min(record.max_attempts ?? 0, mostClaims)) return end(d, v, "failed", record.error + spent(record));
  if (tooOld(d, v)) return aged(d, v, "failed", `${record.error}; retries end at the horizon of ${formatDuration(v.horizon)}`);
  return v.handles ? claim(d, v, record.attempt + 1) : unhandled(d);
}

function died({ record, revision, now, disowned }) {
  const error = `worker ${record.node} ${disowned ? "does not hold its claim" : "died"}`;
  return { ...closed(record, revision, now, error), error };
}

const spent = (r) => (r.max_attempts === 1 ? " (its one attempt is spent)" : ` (all ${r.max_attempts} attempts are spent)`);

// begun returns the time from which a slot's age counts. A run that a message of a stream started is as old as
// that message.
function begun({ slot, event, due, published }) {
  if (slot.at !== undefined) return fromSeconds(slot.at);
  return event && due < published ? due : published;
}

// begunBy is begun for a record. A triggered run without a time of publication counts as very old.
function begunBy(record) {
  const { at } = parseSlot(record.id);
  if (at !== undefined) return fromSeconds(at);
  if (!record.published) return fromSeconds(-62_135_596_800);
  const published = parseInstant(record.published), due = record.due && parseInstant(record.due);
  return record.event && due < published ? due : published;
}

// certain returns the latest time that the broker's clock has certainly reached.
const certain = (v) => v.now - fromMs(v.error ?? 0);

// tooOld takes the earlier of the times in the message and in the record, so that a slot that is published
// again does not become younger.
export function tooOld(d, v) {
  let from = begun({ ...d.message, published: d.published });
  if (v.record?.published && begunBy(v.record) < from) from = begunBy(v.record);
  return toMs(certain(v) - from) > v.horizon;
}

// early returns how many ms a slot still waits if the broker stored its message before the slot was due.
function early({ message: m, published }, v) {
  let due = m.due;
  if (m.chained) due = m.slot.at === undefined ? undefined : fromSeconds(m.slot.at);
  else if (m.slot.range && m.missedLast > due) due = m.missedLast;
  return due !== undefined && published < due ? toMs(due - certain(v)) : 0;
}

const isPlanned = (m) => m.slot.token === undefined && !m.chained;

// splitOtherwise reports whether the slot's plan splits it into another number of shards than its message says.
// Then the producer of the message did not know the last edit of the plan.
function splitOtherwise(m, entry) {
  if (!isPlanned(m) || m.revision >= entry.revision || !belongs(m, entry)) return false;
  return (planAt(entry, fromSeconds(m.slot.at))?.plan.shards ?? 0) !== (m.slot.shards ?? 0);
}

// splits reports whether the message is for a whole slot, and the job's plan splits that slot into shards.
function splits(m, entry) {
  if (m.slot.shards) return false;
  if (m.event) return Boolean((planAt(entry, m.due) ?? entry.plans[0]).plan.shards);
  if (isPlanned(m)) return Boolean((planAt(entry, fromSeconds(m.slot.at)) ?? entry.plans.at(-1)).plan.shards);
  return (m.revision === 0 || m.revision >= entry.revision) && Boolean(entry.plans.at(-1).plan.shards);
}

// uncomputed reports whether the slot's plan has a schedule that cannot be computed.
function uncomputed(m, entry) {
  if (!isPlanned(m) || m.revision >= entry.revision) return false;
  const plan = planAt(entry, fromSeconds(m.slot.at));
  return plan !== undefined && plan.schedule === undefined;
}

function belongs(m, entry) {
  if (m.revision >= entry.revision) return true;
  if (m.chained) return Boolean(entry.job.plan.after?.length);
  if (m.slot.token !== undefined) return true;
  const plan = planAt(entry, fromSeconds(m.slot.at));
  return plan !== undefined && plan.schedule.includes(m.slot.at);
}

function ofPause(m, entry) {
  if ((m.slot.token !== undefined && !m.chained) || m.revision >= entry.revision) return false;
  const pause = pauseAt(entry, m.due);
  return pause !== undefined && (!m.caughtUp || pause.to === undefined);
}

function pastDeadline(d, v) {
  const by = startBy(d, v.entry);
  return by !== undefined && certain(v) > by;
}

function startBy({ message: m, published }, { job }) {
  if (!job.deadline) return undefined;
  const late = m.caughtUp || m.backfill || m.chained || m.due === undefined;
  const from = late && !(m.due > published) ? published : m.due; // a message that was stored before the slot was due does not shorten it
  return from + fromMs(parseDuration(job.deadline));
}

const unhandled = (d) => ({ do: "later", delay: Math.min(200 * 2 ** Math.min(Math.floor((d.count - 1) / 4), 9), 60_000) });

function claim(d, v, attempt) {
  if (d.message.slot.shards) return unhandled(d); // this program leaves split slots to others
  if (!v.entry) return unhandled(d); // the job was deleted after the first claim, so its lock is not known
  if (guarded(v.entry.job) && v.place?.kind !== "held") return unplaced(d, v);
  const { retry_at, error, output, on_time, ...record } = recordOf(d, v);
  if (output && record.attempts?.length) record.attempts = record.attempts.with(-1, { ...record.attempts.at(-1), output });
  record.max_attempts ||= v.entry.job.attempts;
  const by = v.record ? undefined : startBy(d, v.entry);
  if (by !== undefined) record.start_by = formatInstant(by);
  let attempts = record.attempts ?? [];
  if (attempt === record.attempt) attempts = attempts.slice(0, -1); // the claim's answer was lost: claim the same attempt again
  record.attempts = history([...attempts, { attempt, node: v.self, started: formatInstant(started(d, v)) }]);
  return { do: "start", record: { ...record, state: "running", node: v.self, attempt } };
}

// started returns when an attempt starts that is claimed now. It cannot start before its message was stored, so a
// timestamp that is later than now by no more than the clock's error counts.
function started({ published }, { now, error = 0 }) {
  return published > now && toMs(published - now) <= error ? published : now;
}

// history returns the attempts that a record keeps, the last of which begins now: the newest 200. All but the newest 20
// keep the first 200 bytes of their errors. The output of the newest attempt that has ended keeps 32 KiB of JSON, each
// older one half as much as the next, and all at least 256 bytes.
function history(attempts) {
  const kept = attempts.slice(-200).map((a) => ({ ...a }));
  for (const a of kept.slice(0, -20)) if (a.error) a.error = cut(a.error, 200);
  let share = 32_768;
  for (const a of kept.slice(0, -1).reverse()) {
    if (a.output) a.output = quotedIn(a.output, Math.max(share, 256));
    share /= 2;
  }
  return kept;
}

// quotedIn cuts a text, so that it has at most most bytes as JSON.
function quotedIn(text, most) {
  let kept = text;
  for (let n = most - 64; Buffer.byteLength(JSON.stringify(kept)) - 2 > most; n >>= 1) kept = headAndTail(text, n);
  return kept;
}

function unplaced(d, v) {
  switch (v.place?.kind) {
    case "waits": return stand(d, v);
    case "skipped": return end(d, v, "skipped", `slot ${v.place.inWay} was in its way (overlap: ${v.entry.job.overlap})`);
    case "cancelled": return end(d, v, "cancelled", `replaced by ${v.place.inWay}`);
    default: return { do: "enter" };
  }
}

// stand puts the slot into its job's line: its record is written first, and then its entry. The record of a slot that was
// offered again is written anew, so that its entry has a message ID of its own.
function stand(d, v) {
  if (v.record?.state === "waiting" && !d.message.offer) return { do: "stand", record: v.record, stored: true };
  const { retry_at, on_time, ...record } = recordOf(d, v), by = v.record || !v.entry ? undefined : startBy(d, v.entry);
  return { do: "stand", record: { ...record, ...(by !== undefined && { start_by: formatInstant(by) }), ...(isOnTime(d, v) && { on_time: true }), state: "waiting", node: v.self } };
}

// isOnTime reports whether a slot was published on time and has not begun.
export function isOnTime({ message: m }, { record }) {
  if (record) return record.state === "waiting" && Boolean(record.on_time);
  return !(m.caughtUp || m.backfill || m.offer || m.slot.token !== undefined);
}

// aged ends a slot because of its age. While the clock is implausible, the slot waits instead, because an
// outcome is final.
function aged(d, v, state, error) {
  return v.implausible ? { do: "later", delay: 30_000 } : end(d, v, state, error);
}

function end(d, v, state, error) {
  if (d.message.slot.shards) return unhandled(d);
  let record = recordOf(d, v);
  if (record.state === "running") record = closed(record, v.revision, v.now, error);
  const { retry_at, on_time, ...rest } = record;
  return { do: "end", record: { ...rest, state, node: v.self, error: clip(error), finished: formatInstant(v.now) } };
}

// cancelled returns the record of a slot that does not run and is cancelled.
export const cancelled = (d, v, reason) => end(d, v, "cancelled", reason).record;

// recordOf returns the slot's record, or a new one if there is none.
function recordOf(d, v) {
  if (v.record) return v.record;
  const { message: m } = d;
  const record = { v: 1, id: slotID(m.slot), queue: d.queue, attempt: 0 };
  if (m.revision) record.job_revision = m.revision;
  if (m.due !== undefined) record.due = formatInstant(m.due);
  record.published = formatInstant(d.published);
  if (m.node) record.publisher = m.node;
  if (m.event) record.event = true;
  if (m.slot.token !== undefined && d.payload?.length && d.payload.length <= mostPayload) record.payload = Buffer.from(d.payload).toString("base64");
  if (m.slot.range && m.missed) record.count = m.missed;
  if (m.slot.range && m.missedLast !== undefined) record.last = formatInstant(m.missedLast);
  return record;
}

// closed returns the record with its last attempt ended. If that has ended already, it stays as it is.
function closed(record, fence, now, error) {
  const attempts = [...(record.attempts ?? [])];
  const last = attempts.at(-1);
  if (last && !last.finished) attempts[attempts.length - 1] = { attempt: last.attempt, node: last.node, fence, started: last.started, finished: formatInstant(now), ...(error && { error: clip(error) }) };
  return { ...record, attempts };
}

// complete returns the record after the attempt whose claim is claimed, at the revision fence. result is
// {error, permanent, retryAfter, stopped, cancelled, output, value, backoff}. value is the result that the
// handler has set.
export function complete(claimed, fence, now, horizon, result) {
  const { error: _, output: __, ...record } = closed(claimed, fence, now, result.error);
  if (result.output) record.output = result.output;
  const final = (state, error) => ({ ...record, state, ...(error && { error: clip(error) }), finished: formatInstant(now) });
  if (!result.error) return { ...final("succeeded"), result: result.value };
  if (result.cancelled) return final("cancelled", result.error);
  if (result.permanent) return final("failed", result.error);
  if (record.attempt >= record.max_attempts) return final("failed", result.error + spent(record));
  const next = now + fromMs(result.stopped ? 0 : result.retryAfter ?? result.backoff);
  if (toMs(next - begunBy(record)) > horizon) return final("failed", `${result.error} (retries end at the horizon of ${formatDuration(horizon)})`);
  return { ...record, state: "retrying", error: clip(result.error), retry_at: formatInstant(next) };
}

// release returns the record after a claim whose handler was not started, without that attempt.
export function release(claimed, now) {
  const { attempts, ...record } = claimed;
  const rest = (attempts ?? []).slice(0, -1);
  return { ...record, ...(rest.length && { attempts: rest }), state: "retrying", attempt: Math.max(claimed.attempt - 1, 0), retry_at: formatInstant(now), error: "given back before it was started" };
}

// fenceOf returns the fence of a record's last attempt, or the revision of the record if there is none.
export const fenceOf = (record, revision) => record.attempts?.at(-1)?.fence || revision;

// outlasts reports whether a claim is still valid although its key has another revision. stored is the record now. If
// the ledger was purged, or restored from an older copy, there is none, or this claim, or a record from before it.
export function outlasts(claimed, stored) {
  if (!stored) return true;
  if (isFinal(stored)) return false;
  return stored.state === "running" && stored.node === claimed.node ? stored.attempt <= claimed.attempt : stored.attempt < claimed.attempt;
}

const clip = (error) => headAndTail(error, 2048);

// fit returns the record, cut so that its JSON has at most limit bytes: the errors of earlier attempts, their outputs
// (the oldest first), the output, the result, the oldest attempts, and the error, in this order. It cuts nothing else,
// so the JSON may still be longer.
export function fit(record, limit) {
  const over = () => Buffer.byteLength(encode(record)) > limit;
  const shrink = (owner, name, least) => {
    const whole = owner[name] ?? "";
    for (let most = Buffer.byteLength(whole) >> 1; over() && most >= least; most >>= 1) owner[name] = headAndTail(whole, most);
  };
  if (!over()) return record;
  record = { ...record, ...(record.attempts && { attempts: record.attempts.map((a) => ({ ...a })) }) };
  const earlier = record.attempts?.slice(0, -1) ?? [];
  for (const a of earlier) if (a.error) a.error = headAndTail(a.error, 100);
  for (const a of earlier) shrink(a, "output", 64);
  shrink(record, "output", 64);
  if (over() && record.result !== undefined) [record.result, record.result_dropped] = [undefined, Buffer.byteLength(JSON.stringify(record.result))];
  if (over() && earlier.length) record.attempts = record.attempts.slice(-8);
  for (const owner of [record, record.attempts?.at(-1) ?? {}]) shrink(owner, "error", 64);
  return record;
}

// headAndTail cuts a text to its first and its last most/2 bytes.
export function headAndTail(s, most) {
  const bytes = Buffer.from(s), half = most >> 1;
  if (bytes.length <= most) return s;
  const head = bytes.subarray(0, most - half).toString().replace(/\uFFFD+$/, "");
  const tail = bytes.subarray(bytes.length - half).toString().replace(/^\uFFFD+/, "");
  return `${head}\n... (${bytes.length - Buffer.byteLength(head) - Buffer.byteLength(tail)} bytes cut) ...\n${tail}`;
}
