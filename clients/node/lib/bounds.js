// The bounds of stored values (docs/protocol.md, section 3). Any login that may write a key may write anything
// there, so a value outside the bounds is invalid. Texts for people are cut instead.
import { Invalid, checkName, parseSlot } from "./names.js";
import { UnknownVersion, decode, formatDuration, optional, parseDuration, parseInstant } from "./values.js";

const hour = 3_600_000, century = 100 * 366 * 24 * hour;
const claims = 1_000_000, counts = 2 ** 31 - 1, text = 4096, output = 131_072;

// The members of each kind, each with the value that stands for an absent one, or for null. Undefined: the
// member is optional.
const never = "0001-01-01T00:00:00Z", zero = "0s";
const optionals = (names) => Object.fromEntries(names.split(" ").map((name) => [name, undefined]));
const members = {
  record: {
    queue: "", attempt: 0, node: "", nonce: "",
    ...optionals("attempts max_attempts start_by job_revision due published publisher event payload retry_at finished error shards output result result_dropped shadow count last"),
  },
  lock: { nonce: "", ...optionals("waiting newest") },
  node: {
    started: never, lease: zero, producer: false, worker: false, running: 0, clock_offset: zero, clock_error: zero, tzdata: "", version: "", nonce: "",
    ...optionals("queues handlers priority fenced_by fenced_at"),
  },
  settings: { lease: zero, horizon: zero, retention: zero, duplicates: zero, replicas: 0 },
  watermark: { time: never, registry_revision: 0, node: "", nonce: "", ...optionals("registry_time") },
  definition: { owner: "", node: "", nonce: "", ...optionals("since past superseded paused pauses applied") },
};

// decodeAs reads a value of a kind: record, lock, node, settings, watermark, definition.
export function decodeAs(kind, json) {
  const value = decode(json);
  fill(value, members[kind]);
  checks[kind](value);
  return value;
}

function fill(value, absent) {
  for (const [name, text] of Object.entries(absent)) value[name] ??= text;
}

function number(value, name, least, most) {
  const n = value[name] ?? 0;
  if (!Number.isInteger(n) || n < least || n > most) throw new Invalid(`${name} ${n}: want ${least} to ${most}`);
}

function span(value, name, least, most) {
  const d = parseDuration(value[name] ?? "0s");
  if (d < least || d > most) throw new Invalid(`${name} ${value[name]}: out of bounds`);
}

function instants(value, ...names) {
  for (const name of names) optional(value[name]);
}

function words(value, ...names) {
  for (const name of names) {
    const word = value[name] ?? "";
    if (typeof word !== "string" || Buffer.byteLength(word) > 256) throw new Invalid(`${name}: want text of at most 256 bytes`);
  }
}

function list(value, name, most) {
  const found = value[name] ?? [];
  if (!Array.isArray(found) || found.length > most) throw new Invalid(`${name}: want a list of at most ${most}`);
  return found;
}

// state checks that there is a state, and that this program knows it. An unknown one comes from a newer program.
function state(value, ...known) {
  if (!value.state || value.state === "pending") throw new Invalid("it has no state");
  if (!known.includes(value.state)) throw new UnknownVersion(`state ${JSON.stringify(value.state)}: this program knows ${known}`);
}

function cut(value, name, most) {
  if (value[name]?.length > most) value[name] = value[name].slice(0, most) + "...";
}

const checks = {
  record(r) {
    const slot = parseSlot(String(r.id));
    state(r, "running", "retrying", "succeeded", "failed", "skipped", "missed", "expired", "cancelled");
    if (r.queue) checkName("queue", r.queue);
    number(r, "attempt", 0, claims);
    number(r, "max_attempts", 0, claims);
    number(r, "count", 0, counts);
    if (r.shards) number(r, "shards", slot.shards || slot.range ? Infinity : 2, 256);
    words(r, "node", "nonce", "publisher");
    if (Buffer.byteLength(r.payload ?? "", "base64") > 262_144) throw new Invalid("payload: want at most 256 KiB");
    instants(r, "due", "published", "retry_at", "finished", "last");
    cut(r, "error", text);
    cut(r, "output", output);
    number(r, "result_dropped", 0, counts);
    number(r, "shadow", 0, claims);
    const size = Buffer.byteLength(JSON.stringify(r.result) ?? "");
    if (size > 65_536) [r.result, r.result_dropped] = [undefined, size];
    if (r.attempts) r.attempts = list(r, "attempts", Infinity).slice(-200);
    for (const a of r.attempts ?? []) {
      number(a, "attempt", 0, claims);
      words(a, "node");
      instants(a, "started", "finished");
      cut(a, "error", text);
      cut(a, "output", output);
    }
  },
  lock(l) {
    checkName("job", l.job);
    l.holders ??= [];
    for (const s of [...list(l, "holders", 1000), ...list(l, "waiting", 100)]) {
      fill(s, { at: never, since: never });
      if (parseSlot(String(s.id)).job !== l.job) throw new Invalid(`lock of ${l.job}: it names ${s.id}`);
      instants(s, "at", "since");
    }
    instants(l, "newest");
    words(l, "nonce");
  },
  node(n) {
    checkName("node", n.node);
    state(n, "alive", "stopped", "fenced");
    span(n, "lease", 0, 24 * hour);
    number(n, "priority", 0, 9);
    number(n, "running", 0, counts);
    span(n, "clock_offset", -century, century);
    span(n, "clock_error", 0, century);
    for (const queue of list(n, "queues", 1000)) checkName("queue", queue);
    for (const job of list(n, "handlers", 1_000_000)) checkName("job", job);
    instants(n, "started", "fenced_at");
    words(n, "tzdata", "version", "fenced_by", "nonce");
  },
  settings(s) {
    const standard = (name, length) => { if (parseDuration(s[name]) === 0) s[name] = formatDuration(length); };
    standard("lease", 20_000);
    standard("horizon", 24 * hour);
    standard("retention", Math.max(168 * hour, parseDuration(s.horizon) + 24 * hour));
    standard("duplicates", 120_000);
    span(s, "lease", 1000, 24 * hour);
    span(s, "horizon", 60_000, century);
    span(s, "retention", parseDuration(s.horizon) + hour, century);
    span(s, "duplicates", 120_000, century);
    number(s, "replicas", 0, 5);
  },
  watermark(w) {
    parseInstant(w.time);
    instants(w, "registry_time");
    words(w, "node", "nonce");
  },
  definition(d) {
    for (const p of [...list(d, "past", 20), { plan: d.job?.plan }]) {
      fill(p, { from: never, plan: {} });
      instants(p, "from");
      instants(p.plan, "from", "until");
      number(p.plan, "shards", 0, 256);
    }
    for (const hash of list(d, "superseded", 50)) words({ hash }, "hash");
    for (const p of list(d, "pauses", 50)) {
      fill(p, { from: never, ...optionals("to") });
      instants(p, "from", "to");
    }
    instants(d, "since");
    words(d, "owner", "node", "nonce");
  },
};
