// The stored values and their bounds (docs/protocol.md, sections 3, 5, 9, 10 and 13). Any login that may write a key may
// write anything there, so a value with a member of another type, or outside the bounds, is invalid. Texts for people
// are cut instead.
import { Invalid, checkName, parseSlot } from "./names.js";
import { UnknownVersion, Verbatim, decode, formatDuration, formatInstant, parseDuration, parseInstant, rawMember } from "./values.js";

const hour = 3_600_000, century = 100 * 366 * 24 * hour;
const claims = 1_000_000, counts = 2 ** 31 - 1;

// A reader of a member is a function of its value and its name. type returns one that calls read, or returns absent if
// there is no value, or null.
const type = (absent, read) => (v, name) => (v === undefined || v === null ? absent : read(v, name));
const wrong = (name, v, want) => new Invalid(`${name} ${String(JSON.stringify(v)).slice(0, 80)}: want ${want}`);
const check = (ok, name, v, want) => {
  if (!ok) throw wrong(name, v, want);
  return v;
};

const text = (most = Infinity) => type("", (v, name) => check(typeof v === "string" && Buffer.byteLength(v) <= most, name, v, `text of at most ${most} bytes`));
const word = text(256);
const whole = (least, most) => type(0, (v, name) => check(Number.isInteger(v) && v >= least && v <= most, name, v, `${least} to ${most}`));
const integer = type(0, (v, name) => check(Number.isInteger(v), name, v, "a whole number"));
// A revision has 64 bits. A Number cannot hold more than 53 of them, and a larger one would be written as one that no
// program can read. No stream has so many messages.
const revision = type(0, (v, name) => Math.min(check(Number.isInteger(v) && v >= 0 && v <= 2 ** 64, name, v, "a revision"), Number.MAX_SAFE_INTEGER));
const flag = type(false, (v, name) => check(typeof v === "boolean", name, v, "true or false"));
const any = type(undefined, (v) => v);

// cut is a text for people, of at most most bytes.
const cut = (most) => type("", (v, name) => clip(text()(v, name), most));
export const clip = (v, most) => (Buffer.byteLength(v) <= most + 3 ? v : Buffer.from(v).subarray(0, most).toString().replace(/\uFFFD+$/, "") + "...");

// An instant is written again in UTC.
const never = "0001-01-01T00:00:00Z";
const instant = type(never, (v, name) => {
  const ns = parseInstant(check(typeof v === "string", name, v, "an instant"));
  return v.endsWith("Z") && ns !== parseInstant(never) ? v : formatInstant(ns);
});

const span = (least = -Infinity, most = Infinity) => type("0s", (v, name) => {
  const d = parseDuration(check(typeof v === "string", name, v, "a duration"));
  return check(d >= least && d <= most, name, v, `${formatDuration(least)} to ${formatDuration(most)}`);
});

const list = (item, most = Infinity) => type(Object.freeze([]), (v, name) => check(Array.isArray(v) && v.length <= most, name, v, `a list of at most ${most}`).map((one) => item(one, name)));

// optional has no value for an absent member, for an instant that is never, and for 0, "" and false.
const optional = (reader) => (v, name) => {
  const read = v === undefined || v === null ? undefined : reader(v, name);
  return read === never || read === 0 || read === "" || read === false ? undefined : read;
};
const optionals = (members) => Object.fromEntries(Object.entries(members).map(([name, reader]) => [name, optional(reader)]));

// object reads an object: those of its members that are known.
const object = (members) => (v, name) => {
  check(v === null || v === undefined || (typeof v === "object" && !Array.isArray(v)), name, v, "an object");
  const known = {};
  for (const [member, reader] of Object.entries(members)) {
    const read = reader(v?.[member], member);
    if (read !== undefined) known[member] = read;
  }
  return known;
};

const webhook = { ...optionals({ url: text(), url_env: text() }), headers: optional(list(object({ name: text(), prefix: optional(text()), env: text() }))) };
const alert = optionals({ http: object(webhook), nats: object({ subject: text() }), format: text(), template: text(), key_env: text() });
const plan = optionals({
  schedule: text(), after: list(text()), on: object({ stream: text(), subject: text() }), timezone: text(), spread: span(), from: instant, until: instant,
  exclude: list(text()), dst_gap: text(), dst_overlap: text(), shards: whole(0, 256),
});
const job = {
  ...optionals({
    name: text(), queue: text(), timeout: span(), deadline: span(), attempts: integer, backoff: span(), max_backoff: span(), overlap: text(),
    concurrency: integer, on_lease_lost: text(), catch_up: text(), catch_up_within: span(), catch_up_max: integer, output: integer,
    on_failure: object(alert), on_missed: object(alert), on_success: object(alert), on_recovered: object(alert), on_late: object(alert), late_after: span(), heartbeat: object(webhook),
  }),
  payload: any, plan: object(plan),
};

const attempt = {
  attempt: whole(0, claims), node: word, started: instant, ...optionals({ fence: revision, finished: instant, error: cut(4096), output: cut(131_072) }),
};
const held = { id: text(), at: instant, since: instant, ...optionals({ on_time: flag, node: word }) };
const named = (what) => (v) => checkName(what, v ?? "");

const members = {
  record: {
    id: text(), queue: text(), state: text(), attempt: whole(0, claims), node: word, nonce: word,
    ...optionals({
      attempts: (v, name) => list(object(attempt))(Array.isArray(v) ? v.slice(-200) : v, name),
      max_attempts: whole(0, claims), start_by: instant, on_time: flag, job_revision: revision, due: instant, published: instant, publisher: word, event: flag,
      payload: text(), retry_at: instant, finished: instant, error: cut(4096), shards: whole(0, 256), output: cut(131_072), result_dropped: whole(0, counts),
      shadow: whole(0, claims), count: whole(0, counts), last: instant,
    }),
    result: any,
  },
  lock: { job: named("job"), holders: list(object(held), 1000), nonce: word, ...optionals({ waiting: flag, line: revision, newest: instant }) },
  node: {
    node: named("node"), state: text(), started: instant, lease: span(0, 24 * hour), producer: flag, worker: flag, running: whole(0, counts), clock_offset: span(-century, century),
    clock_error: span(0, century), tzdata: word, version: word, nonce: word,
    ...optionals({ queues: list(named("queue"), 1000), priority: whole(0, 9), fenced_by: word, fenced_at: instant }),
  },
  handlers: { node: named("node"), nonce: word, ...optionals({ handlers: list(named("job"), 1_000_000), more: whole(0, counts) }) },
  settings: { lease: span(), horizon: span(), retention: span(), duplicates: span(), replicas: whole(0, 5) },
  watermark: { time: instant, registry_revision: revision, node: word, nonce: word, registry_time: optional(instant) },
  definition: {
    job: object(job), owner: word, node: word, nonce: word,
    ...optionals({
      since: instant, past: list(object({ from: instant, plan: object(plan) }), 20), superseded: list(word, 50), paused: flag,
      pauses: list(object({ from: instant, to: optional(instant) }), 50), applied: flag,
    }),
  },
};

// The members of a plan, and of the messages that it names. Other ones come from a newer program.
const planMembers = { names: Object.keys(plan), on: ["stream", "subject"] };

// decodeAs reads a value of a kind: record, lock, node, handlers, settings, watermark, definition. It keeps unknown members as they
// were written, but not those of nested objects.
export function decodeAs(kind, json) {
  const value = decode(json);
  if (kind === "definition") foreign(value);
  const known = object(members[kind])(value, kind);
  for (const name of Object.keys(value)) {
    if (Object.hasOwn(members[kind], name)) delete value[name];
    else if (name !== "v") value[name] = new Verbatim(rawMember(json, name));
  }
  Object.assign(value, known);
  checks[kind]?.(value, json);
  return value;
}

// foreign refuses a definition of which some program may know other slots.
function foreign({ job, past }) {
  for (const plan of [job?.plan, ...(Array.isArray(past) ? past.map((p) => p?.plan) : [])]) {
    const unknown = Object.keys(plan ?? {}).find((name) => !planMembers.names.includes(name)) ?? Object.keys(plan?.on ?? {}).find((name) => !planMembers.on.includes(name));
    if (unknown && typeof plan === "object") throw new UnknownVersion(`plan: unknown member ${unknown}: a newer program may compute other slots`);
  }
}

// state checks that there is a state, and that this program knows it. An unknown one comes from a newer program.
function state(value, ...known) {
  if (!value.state || value.state === "pending") throw new Invalid("it has no state");
  if (!known.includes(value.state)) throw new UnknownVersion(`state ${JSON.stringify(value.state)}: this program knows ${known}`);
}

const checks = {
  record(r, json) {
    const slot = parseSlot(r.id);
    state(r, "waiting", "running", "retrying", "succeeded", "failed", "skipped", "missed", "expired", "cancelled");
    if (r.queue) checkName("queue", r.queue);
    if (r.shards === 1 || (r.shards && (slot.shards || slot.range))) throw new Invalid(`shards ${r.shards}: slot ${r.id} cannot be split so`);
    const base64 = (r.payload ?? "").replace(/[\r\n]/g, "");
    check(base64.length % 4 === 0 && /^[A-Za-z0-9+/]*={0,2}$/.test(base64) && Buffer.byteLength(base64, "base64") <= 262_144, "payload", r.payload, "at most 256 KiB in base64");
    const size = r.result === undefined ? 0 : Buffer.byteLength(rawMember(json, "result"));
    if (size > 65_536) [r.result, r.result_dropped] = [undefined, size];
  },
  lock(l) {
    for (const { id } of l.holders) {
      if (parseSlot(id).job !== l.job) throw new Invalid(`lock of ${l.job}: it names ${id}`);
    }
  },
  node(n) {
    state(n, "alive", "stopped", "fenced");
  },
  settings(s) {
    const standard = (name, length) => { if (parseDuration(s[name]) === 0) s[name] = formatDuration(length); };
    standard("lease", 20_000);
    standard("horizon", 24 * hour);
    standard("retention", Math.max(168 * hour, parseDuration(s.horizon) + 24 * hour));
    standard("duplicates", 120_000);
    for (const [name, least, most] of [["lease", 1000, 24 * hour], ["horizon", 60_000, century], ["retention", parseDuration(s.horizon) + hour, century], ["duplicates", 120_000, century]]) {
      span(least, most)(s[name], name);
    }
  },
};
