// Schedules (docs/protocol.md, section 6): which instants are slots. Instants are whole seconds since 1970.
// A local time is a wall-clock time, also in seconds since 1970, as if the zone were UTC.
import { Invalid, checkName } from "./names.js";
import { parseDuration, parseInstant } from "./values.js";
import { hashOf } from "./hash.js";
import { spansFrom, checkZone } from "./zone.js";

const day = 86400;
const lastYear = 9999;
const end = Date.UTC(lastYear + 1, 0, 1) / 1000;
const first = -62_135_596_800; // the year 1

const fields = [
  { name: "second", low: 0, high: 59 },
  { name: "minute", low: 0, high: 59 },
  { name: "hour", low: 0, high: 23 },
  { name: "dom", low: 1, high: 31, hashHigh: 28 },
  { name: "month", low: 1, high: 12, words: ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"], first: 1 },
  { name: "dow", low: 0, high: 7, hashHigh: 6, stepHigh: 6, words: ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"], first: 0 },
];

const macros = {
  "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
  "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
};

// parseSchedule returns the schedule of a job's plan: {next(after), includes(at), delay}. next returns
// undefined if there is no later slot. delay is in seconds.
export function parseSchedule(job, plan) {
  if (plan.schedule === "none" || plan.after?.length || plan.on) return withoutSlots(job, plan);
  const zone = checkZone(plan.timezone || "UTC");
  if (!["after", "skip"].includes(plan.dst_gap ?? "after")) throw new Invalid(`dst_gap ${JSON.stringify(plan.dst_gap)}: want after or skip`);
  if (!["first", "second", "both"].includes(plan.dst_overlap ?? "first")) throw new Invalid(`dst_overlap ${JSON.stringify(plan.dst_overlap)}: want first, second or both`);
  const from = plan.from === undefined ? undefined : ceilSeconds(parseInstant(plan.from));
  const source = parseSource(job, plan, zone, from);
  const excluded = parseExclusions(plan.exclude ?? []);
  const until = plan.until === undefined ? end : ceilSeconds(parseInstant(plan.until));
  if (plan.from !== undefined && plan.until !== undefined && parseInstant(plan.until) <= parseInstant(plan.from)) throw new Invalid(`until ${plan.until}: want an instant after from ${plan.from}`);
  function next(after) {
    if (from !== undefined && after < from) after = from - 1;
    const last = source.repeats ? after + 400 * 366 * day : Infinity; // the calendar repeats itself after 400 years
    const slots = source(after);
    for (let passed = 0, least; ; passed++) {
      const { value: slot, done } = slots.next(least);
      if (done || slot.at >= until || slot.at > last) return undefined;
      if (!excluded) return slot.at;
      const { at, offset = zone.offset(at), end: same = at } = slot;
      const skip = excluded(at + offset); // seconds from the instant at, all of which are excluded
      if (!skip) return at;
      if (passed > 150_000) throw new Invalid(`schedule ${plan.schedule}: too many slots in a row are excluded`); // 400 years have 146,097 days
      least = at + skip <= same || zone.offset(at + skip - 1) === offset ? at + skip : undefined;
    }
  }
  const spread = parseDuration(plan.spread ?? "0s") / 1000;
  if (!Number.isInteger(spread) || spread < 0 || spread > day) throw new Invalid(`spread ${plan.spread}: want whole seconds, from 0s to 24h`);
  const schedule = { next, includes: (at) => next(at - 1) === at, delay: spread ? hashOf(job, "spread", spread) : 0 };
  // Most zones had their first change after 1870. A gap moves a slot, so that it may not be excluded.
  if ([0, Date.UTC(1870, 0, 1) / 1000, first].every((at) => next(at - 1) === undefined)) throw new Invalid(`schedule ${plan.schedule}: has no slot at any time`);
  return schedule;
}

// withoutSlots is the schedule of a job that other jobs, messages or only triggers start.
function withoutSlots(job, plan) {
  const { schedule, after = [], on } = plan;
  if ([schedule, after.length, on].filter(Boolean).length > 1) throw new Invalid("want one of schedule, after and on");
  if (after.length > 32 || after.includes(job) || new Set(after).size < after.length) throw new Invalid("after: want up to 32 other jobs, each once");
  for (const other of after) checkName("after", other);
  if (on && !(isStream(on.stream) && isSubject(on.subject))) throw new Invalid(`on: want the name of a stream, and one of its subjects`);
  const unused = ["spread", "from", "until", "exclude"].find((member) => plan[member]?.length);
  if (unused || (plan.timezone ?? "UTC") !== "UTC") throw new Invalid(`${unused ?? "timezone"}: it applies to schedules only`);
  return { next: () => undefined, includes: () => false, delay: 0 };
}

const isStream = (name) => /^[^ .*>/\\\0-\x1f\x7f]+$/.test(name) && Buffer.byteLength(name) <= 255;

function isSubject(subject) {
  const tokens = subject.split("."), full = tokens.indexOf(">");
  return !/[ \0-\x1f\x7f]/.test(subject) && Buffer.byteLength(subject) <= 1024 && tokens.every(Boolean) && (full < 0 || full === tokens.length - 1);
}

const ceilSeconds = (ns) => Math.ceil(Number(ns / 1_000_000n) / 1000);

// parseSource returns a generator: given an instant, it yields all later ones of the schedule, in order, as {at}. If it
// knows them, each has offset, that of the zone, and end, until when the zone has this offset. It leaves out those before
// an instant that is passed to its next(). repeats is true if the schedule repeats itself with the calendar.
function parseSource(job, plan, zone, from) {
  const text = plan.schedule ?? "";
  const gapOf = (elapsed) => (elapsed ? "skip" : plan.dst_gap ?? "after"), overlapOf = (elapsed) => (elapsed ? "both" : plan.dst_overlap ?? "first");
  const dates = /^@every +(\d{1,9})([dw])$/.exec(text.trim());
  if (dates) {
    const clock = intervalOfDays(text, Number(dates[1]) * (dates[2] === "w" ? 7 : 1), zone, from);
    return Object.assign((after) => instants(clock, zone, after, gapOf(false), overlapOf(false)), { repeats: true });
  }
  if (text.startsWith("@every ")) {
    const period = parseDuration(text.slice(7).trim()) / 1000;
    if (!(period >= 1) || !Number.isInteger(period)) throw new Invalid(`schedule ${text}: want whole seconds, 1s or more`);
    const begin = from ?? 0;
    const later = (instant) => begin + Math.ceil((instant - begin) / period) * period; // the first slot at instant or later
    return function* (after) {
      for (let at = later(after + 1); at < end; at += period) {
        const least = yield { at };
        if (least > at) at = later(least) - period;
      }
    };
  }
  if (text.startsWith("@at ")) {
    const at = Number(parseInstant(text.slice(4).trim()) / 1_000_000n) / 1000;
    if (!Number.isInteger(at)) throw new Invalid(`schedule ${text}: want whole seconds`);
    return function* (after) { if (at > after) yield { at }; };
  }
  const clock = parseExpression(job, text);
  if (clock.never) return Object.assign(function* () {}, { repeats: true });
  return Object.assign((after) => instants(clock, zone, after, gapOf(clock.elapsed), overlapOf(clock.elapsed)), { repeats: true });
}

// intervalOfDays returns the clock of each n-th date from that of from on, at the time of day of from.
function intervalOfDays(text, n, zone, from) {
  if (n < 1 || n > 3660) throw new Invalid(`schedule ${text}: want 1 to 3660 days`);
  if (from === undefined) throw new Invalid(`schedule ${text}: it counts days from a date: want from`);
  const begin = from + zone.offset(from); // local
  return { next: (local) => begin + Math.ceil((local - begin) / (n * day)) * n * day };
}

// instants yields the instants that match, span by span: the zone's offset does not change within a span.
// gap decides about the local times that the clock skips before a span, and overlap about those that occur
// in two spans.
function* instants(clock, zone, after, gap, overlap) {
  let least = after + 1;
  for (const span of spansFrom(zone, after)) {
    if (span.end <= least) continue;
    const begin = span.start + span.offset; // local
    let from = begin, to = Math.min(span.end, end) + span.offset;
    const before = span.before; // the offset of the previous span, if there is one
    if (before !== undefined && before < span.offset && gap === "after" && span.start > after) {
      const lost = clock.next(span.start + before);
      // If the schedule also has the local time of the span's first instant, both are one slot.
      if (lost !== undefined && lost < begin && clock.next(begin) !== begin && span.start >= least) least = (yield { at: span.start, ...span }) ?? least;
    }
    if (before !== undefined && before > span.offset && overlap === "first") from = span.start + before;
    if (span.after !== undefined && span.after < span.offset && overlap === "second") to = span.end + span.after;
    from = Math.max(from, least + span.offset);
    for (let local = clock.next(from); local !== undefined && local < to; local = clock.next(Math.max(local + 1, least + span.offset))) {
      least = (yield { at: local - span.offset, ...span }) ?? least;
    }
  }
}

// parseExpression returns {next(local), matches(local), elapsed, never}. next returns the first matching local time
// at or after local. never is true if there is none. job is the job's name, or undefined for an exclusion.
function parseExpression(job, text) {
  let parts = (job === undefined ? text : macros[text] ?? text).trim().split(/\s+/);
  if (parts.length === 5) parts = ["0", ...parts];
  if (parts.length !== 6 || !/^[ -~\t]{0,1024}$/.test(text)) throw new Invalid(`schedule ${JSON.stringify(text)}: want five fields, six, or @ and a word`);
  const sets = parts.map((p, i) => parseField(job, fields[i], p));
  const [seconds, minutes, hours, doms, months, dows] = sets;
  const either = doms.restricts && dows.restricts;
  const onDay = (local) => {
    const d = new Date(local * 1000);
    if (!months.has(d.getUTCMonth() + 1)) return false;
    const length = daysOf(d);
    const dom = doms.has(d.getUTCDate()) || doms.relative.some((is) => is(d.getUTCDate(), length, d.getUTCDay()));
    const dow = dows.has(d.getUTCDay()) || dows.relative.some((is) => is(d.getUTCDate(), length, d.getUTCDay()));
    return either ? dom || dow : dom && dow;
  };
  const times = [...hours].flatMap((h) => [...minutes].map((m) => h * 3600 + m * 60)).sort((a, b) => a - b);
  const within = [...seconds].sort((a, b) => a - b);
  // The Gregorian calendar repeats itself after 400 years.
  const next = (local) => {
    let date = Math.floor(local / day) * day;
    const last = Math.min(date + 400 * 366 * day, end + day); // in the east of Greenwich, the year 10000 has begun by the end
    for (; date < last; date += day) {
      if (!onDay(date)) continue;
      const least = local - date; // negative on later days
      for (const minute of times) {
        if (minute + 59 < least) continue;
        for (const s of within) if (minute + s >= least) return date + minute + s;
      }
    }
    return undefined;
  };
  return {
    next, never: !either && ![...months].some((month) => exists(doms, longest[month - 1])), elapsed: /^[*?]/.test(parts[2]), onDay, times,
    matches: (local) => onDay(Math.floor(local / day) * day) && hours.has(of(local, 3600, 24)) && minutes.has(of(local, 60, 60)) && seconds.has(of(local, 1, 60)),
  };
}

const longest = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]; // days that a month can have

// exists reports whether a month of that length has one of the days.
const exists = (doms, length) => {
  for (let dom = 1; dom <= length; dom++) if (doms.has(dom) || doms.relative.some((is) => is(dom, length, 3))) return true; // on a Wednesday, 15W is the 15th
  return false;
};

// daysOf returns the number of days of a date's month.
function daysOf(date) {
  const d = new Date(date);
  d.setUTCMonth(d.getUTCMonth() + 1, 0);
  return d.getUTCDate();
}

const of = (local, unit, size) => ((Math.floor(local / unit) % size) + size) % size;

// isNearest reports whether a day is the one from Monday to Friday that is nearest to day n of its month.
function isNearest(n, day, length, weekday) {
  if (n > length) return false;
  const at = (((weekday + n - day) % 7) + 7) % 7; // the weekday of day n
  if (at === 6) return day === (n === 1 ? 3 : n - 1);
  if (at === 0) return day === (n === length ? n - 2 : n + 1);
  return day === n;
}

// parseRelative returns a function (day, length of its month, weekday) for L, L-3, LW, 15W, FRIL and FRI#2, and
// undefined for any other item.
function parseRelative(field, item, number, wrong) {
  let m;
  if (field.name === "dom" && (m = /^L(?:-(\d{1,9}))?$/i.exec(item))) {
    const before = Number(m[1] ?? 0);
    if (m[1] !== undefined && (before < 1 || before > 30)) throw wrong("want L-1 to L-30");
    return (day, length) => day === length - before;
  }
  if (field.name === "dom" && (m = /^(L|\d{1,9})W$/i.exec(item))) {
    const n = /^L$/i.test(m[1]) ? undefined : number(m[1]);
    return (day, length, weekday) => isNearest(n ?? length, day, length, weekday);
  }
  if (field.name === "dow" && (m = /^(\w+?)(?:L|#(\d{1,9}))$/i.exec(item))) {
    const on = number(m[1]) % 7, nth = m[2] === undefined ? undefined : Number(m[2]);
    if (nth < 1 || nth > 5) throw wrong("want #1 to #5");
    return (day, length, weekday) => weekday === on && (nth === undefined ? day + 7 > length : Math.ceil(day / 7) === nth);
  }
}

function parseField(job, field, text) {
  const set = Object.assign(new Set(), { relative: [] });
  const wrong = (why) => new Invalid(`${field.name} ${JSON.stringify(text)}: ${why}`);
  const number = (word) => {
    const named = field.words?.indexOf(word.toUpperCase()) ?? -1;
    if (named >= 0) return named + field.first;
    if (!/^\d{1,9}$/.test(word) || Number(word) < field.low || Number(word) > field.high) throw wrong(`${word} is not ${field.low} to ${field.high}`);
    return Number(word);
  };
  const top = field.stepHigh ?? field.high;
  for (const item of text.split(",")) {
    const relative = parseRelative(field, item, number, wrong);
    if (relative) {
      set.relative.push(relative);
      continue;
    }
    const m = /^(\*|\?|H(?:\((\w+)-(\w+)\))?|(\w+)(?:-(\w+))?)(?:\/(\d{1,9}))?$/.exec(item);
    if (!m) throw wrong("not *, n, a-b, H, or one of them with a step");
    const step = m[6] === undefined ? undefined : Number(m[6]);
    if (step === 0 || step > top - field.low + 1) throw wrong(`a step of ${step}: want 1 to ${top - field.low + 1}`);
    let low, high;
    if (item[0] === "*" || item[0] === "?") {
      [low, high] = [field.low, top];
    } else if (item[0] === "H") {
      if (job === undefined) throw wrong("an exclusion has no H");
      [low, high] = m[2] === undefined ? [field.low, field.hashHigh ?? field.high] : [number(m[2]), number(m[3])];
      if (low > high) throw wrong("a range that ends before it begins");
      if (step > high - low + 1) throw wrong("a step that is longer than the range");
      low += hashOf(job, field.name, step ?? high - low + 1);
      if (step === undefined) high = low;
    } else {
      low = number(m[4]);
      if (field.name === "dow" && low === 7 && m[5] === undefined) low = 0;
      high = m[5] === undefined ? (step === undefined ? low : top) : number(m[5]);
      if (field.name === "dow" && m[5]?.toUpperCase() === "SUN" && low > 0) high = 7;
      if (low > high) throw wrong("a range that ends before it begins");
    }
    for (let n = low; n <= high; n += step ?? 1) set.add(field.name === "dow" ? n % 7 : n);
  }
  set.restricts = !text.split(",").some((item) => /^[*?](\/0*1)?$/.test(item));
  return set;
}

// parseExclusions returns a function (local) => for how many seconds from this local time all instants are excluded: 0
// if that instant is not. It returns undefined if nothing is excluded.
function parseExclusions(list) {
  const dates = new Set(), minutely = [], secondly = []; // expressions of five fields exclude whole minutes
  if (list.length > 1000) throw new Invalid(`exclude: ${list.length} entries, at most 1000`);
  for (const text of list) {
    if (/^\d{4}-\d\d-\d\d$/.test(text)) {
      if (!new Date(`${text}T00:00:00Z`).toJSON()?.startsWith(text)) throw new Invalid(`exclude ${text}: there is no such date`);
      dates.add(text);
    } else {
      if (minutely.length + secondly.length === 64) throw new Invalid("exclude: at most 64 expressions");
      (text.trim().split(/\s+/).length === 5 ? minutely : secondly).push(parseExpression(undefined, text));
    }
  }
  if (list.length === 0) return undefined;
  const tables = new Map(); // by the expressions that match a day: for each of its minutes, the next one that they leave, or 1440
  const tableOf = (active) => {
    const key = active.map((on) => (on ? 1 : 0)).join("");
    if (!tables.has(key)) {
      const excluded = new Set(minutely.flatMap(({ times }, i) => (active[i] ? times : [])));
      const table = new Uint16Array(1441).fill(1440);
      for (let m = 1439; m >= 0; m--) table[m] = excluded.has(m * 60) ? table[m + 1] : m;
      if (tables.size === 1000) tables.clear();
      tables.set(key, table);
    }
    return tables.get(key);
  };
  return (local) => {
    const date = Math.floor(local / day) * day, since = local - date, minute = Math.floor(since / 60);
    if (dates.has(new Date(local * 1000).toISOString().slice(0, 10))) return day - since;
    const open = tableOf(minutely.map((clock) => clock.onDay(date)))[minute];
    if (open > minute) return open * 60 - since;
    return secondly.some((clock) => clock.matches(local)) ? 1 : 0;
  };
}
