// A job's definition and its hash (docs/protocol.md, section 5).
import { createHash } from "node:crypto";
import { Invalid, checkName } from "./names.js";
import { decodeAs } from "./bounds.js";
import { formatDuration, formatInstant, optional, parseDuration, parseInstant, rawMember } from "./values.js";
import { parseSchedule } from "./schedule.js";

const planDefaults = { schedule: "", timezone: "UTC", dst_gap: "after", dst_overlap: "first" };

// given returns the members that are not null, empty or 0. Such a member counts as absent.
const given = (object) => Object.fromEntries(Object.entries(object ?? {}).filter(([name, v]) => v !== null && v !== "" && v !== 0 && v.length !== 0 && !(lengths.has(name) && parseDuration(v) === 0)));

export function withDefaults(raw) {
  const job = { ...given(raw), ...(Object.hasOwn(raw, "payload") && { payload: raw.payload }) };
  const backoff = job.backoff ?? "1s";
  return {
    queue: "default", attempts: 3, overlap: job.plan?.on ? "allow" : "skip", catch_up: "latest", catch_up_max: 100,
    ...job,
    backoff,
    max_backoff: job.max_backoff ?? (parseDuration(backoff) > 60_000 ? backoff : "1m0s"),
    plan: planOf(job.plan),
  };
}

// planOf returns a plan with its defaults. One that has a single shard is not split.
function planOf(raw) {
  const { shards, ...plan } = { ...planDefaults, ...given(raw) };
  return shards === undefined || shards < 2 ? plan : { ...plan, shards };
}

// UnknownSchedule is the error of a schedule that this program cannot compute. Other programs may be able to.
class UnknownSchedule extends Invalid {}

// parseEntry reads an entry of the registry. time is the broker's timestamp of its message. The payload of
// the result is the text as it was written.
export function parseEntry(text, revision, time) {
  const value = decodeAs("definition", text);
  const job = withDefaults(value.job);
  const payload = rawMember(rawMember(text, "job") ?? "{}", "payload") ?? "";
  validate(job, payload);
  const entry = { job, payload, revision, time, paused: value.paused === true };
  const since = optional(value.since) ?? time;
  const past = (value.past ?? []).map((p) => ({ from: parseInstant(p.from), plan: planOf(p.plan) }));
  entry.plans = [...past, { from: since, plan: job.plan }];
  entry.plans.forEach((p, i) => {
    p.to = entry.plans[i + 1]?.from; // of the last: none
    try {
      p.schedule = parseSchedule(job.name, p.plan);
    } catch (err) {
      if (p.to === undefined || !(err instanceof Invalid)) throw new UnknownSchedule(err.message); // an invalid past plan has no schedule
    }
  });
  entry.pauses = pausesOf(value, time);
  return entry;
}

// validate refuses a job that no program runs. A worker that took an unknown policy for another one would decide
// otherwise than the program that knows it.
function validate(job, payload) {
  checkName("job", job.name);
  checkName("queue", job.queue);
  const check = (ok, name) => {
    if (!ok) throw new Invalid(`job ${job.name}: ${name} ${JSON.stringify(job[name])} is out of bounds`);
  };
  for (const [name, least, most] of [["attempts", 1, 1000], ["concurrency", 0, 1000], ["catch_up_max", 1, 1000], ["output", 0, 65_536]]) {
    check((job[name] ?? 0) >= least && (job[name] ?? 0) <= most, name);
  }
  for (const name of ["timeout", "deadline", "backoff", "catch_up_within", "late_after"]) check(parseDuration(job[name] ?? "0s") >= 0, name);
  check(parseDuration(job.max_backoff) >= parseDuration(job.backoff), "max_backoff");
  check(["skip", "queue", "latest", "replace", "allow"].includes(job.overlap), "overlap");
  check(["latest", "all", "none"].includes(job.catch_up), "catch_up");
  check(["cancel", "finish"].includes(job.on_lease_lost ?? "cancel"), "on_lease_lost");
  check(Buffer.byteLength(payload) <= 262_144, "payload");
  const either = (a, b) => Boolean(a) !== Boolean(b);
  for (const name of ["on_failure", "on_missed", "on_success", "on_recovered", "on_late"]) {
    check(!job[name] || (either(job[name].http?.url, job[name].http?.url_env) && !job[name].nats) || (job[name].nats?.subject && !job[name].http), name);
  }
}

// pausesOf returns the pauses of a job. When the last one begins or ends, its writer does not know the
// timestamp of its own write, which is time.
function pausesOf(value, time) {
  const pauses = (value.pauses ?? []).map((p) => ({ from: parseInstant(p.from), to: optional(p.to) }));
  const last = pauses.at(-1);
  if (value.paused && (!last || last.to !== undefined)) pauses.push({ from: time });
  if (!value.paused && last && last.to === undefined) last.to = time;
  return pauses;
}

export const pauseAt = (entry, due) => entry.pauses.find((p) => due > p.from && (p.to === undefined || due <= p.to));

export const planAt = (entry, at) => entry.plans.find((p) => at > p.from && (p.to === undefined || at <= p.to));

export const guarded = (job) => job.overlap !== "allow" || Boolean(job.concurrency);

const lengths = new Set(["timeout", "deadline", "backoff", "max_backoff", "catch_up_within", "late_after", "spread"]);
const instants = new Set(["from", "until"]);

// The members of the canonical text, in order. The value of an object is an object with the names of its members.
const plain = (...names) => Object.fromEntries(names.map((name) => [name, undefined]));
const webhook = { ...plain("url", "url_env"), headers: plain("name", "prefix", "env") };
const alert = { http: webhook, nats: plain("subject"), ...plain("format", "template", "key_env") };
const planMembers = {
  ...plain("schedule", "after"), on: plain("stream", "subject"),
  ...plain("timezone", "spread", "from", "until", "exclude", "dst_gap", "dst_overlap", "shards"),
};
const job = {
  ...plain("name", "queue", "payload", "timeout", "deadline", "attempts", "backoff", "max_backoff", "overlap", "concurrency",
    "on_lease_lost", "catch_up", "catch_up_within", "catch_up_max", "output"),
  on_failure: alert, on_missed: alert, on_success: alert, on_recovered: alert, on_late: alert, late_after: undefined, heartbeat: webhook,
  plan: planMembers,
};

// canonical returns the text of a definition that is hashed. raw is the definition as it was written, because
// the payload is hashed as it was written.
export function canonical(raw) {
  const payload = rawMember(raw, "payload");
  const text = (name, v, members) => {
    if (name === "payload") return compact(payload);
    if (lengths.has(name)) return JSON.stringify(formatDuration(parseDuration(v)));
    if (instants.has(name)) return JSON.stringify(formatInstant(parseInstant(v)));
    if (members && Array.isArray(v)) return `[${v.map((item) => text("", item, members)).join(",")}]`;
    if (!members) return JSON.stringify(v);
    const kept = Object.keys(members).filter((n) => v[n] !== undefined && !(n === "on_lease_lost" && v[n] === "cancel")); // older programs hash a definition without this default
    return `{${kept.map((n) => `${JSON.stringify(n)}:${text(n, v[n], members[n])}`).join(",")}}`;
  };
  return text("", withDefaults(JSON.parse(raw)), job).replace(/[<>&\u2028\u2029]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

// compact is JSON without white space outside of strings.
const compact = (json) => json.replace(/("(?:[^"\\]|\\.)*")|\s+/g, "$1");

export const hashOfDefinition = (raw) => createHash("sha256").update(canonical(raw)).digest("hex").slice(0, 16);
