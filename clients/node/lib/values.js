// Instants, durations and JSON values (docs/protocol.md, section 3). Instants are nanoseconds since 1970, as BigInt,
// because two writes within one millisecond must differ. Durations are milliseconds.
import { Invalid } from "./names.js";

export class UnknownVersion extends Invalid {}

export function decode(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (err) {
    throw new Invalid(`not JSON: ${err.message}`);
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Invalid("not a JSON object");
  if (value.v !== 1) throw new UnknownVersion(`format version ${value.v}: this program knows 1`);
  return value;
}

// textOf returns the body of a message. The client's own string() leaves out U+FEFF at the beginning, with which a text is
// not JSON.
export const textOf = (m) => Buffer.from(m.data).toString();

const earliest = Date.parse("0000-01-01T00:00:00Z"), latest = Date.parse("9999-12-31T23:59:59Z");

export function parseInstant(text) {
  const m = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/.exec(text);
  const exists = m && new Date(m[1] + "Z").toJSON()?.startsWith(m[1]); // Date.parse takes 24:00 and February 30 too
  const ms = exists ? Date.parse(m[1] + m[3]) : NaN;
  if (!(ms >= earliest && ms <= latest)) throw new Invalid(`instant ${JSON.stringify(text)}: want RFC 3339, in UTC of the years 0 to 9999`);
  return BigInt(ms) * 1_000_000n + BigInt((m[2] ?? "").padEnd(9, "0"));
}

export function formatInstant(ns) {
  const whole = floorDiv(ns, 1_000_000_000n);
  const fraction = String(ns - whole * 1_000_000_000n).padStart(9, "0").replace(/0+$/, "");
  return new Date(Number(whole) * 1000).toISOString().slice(0, 19) + (fraction && "." + fraction) + "Z";
}

const floorDiv = (a, b) => (a - (((a % b) + b) % b)) / b;

export const fromSeconds = (s) => BigInt(s) * 1_000_000_000n;
export const fromMs = (ms) => BigInt(Math.round(ms * 1000)) * 1000n;
export const toMs = (ns) => Number(ns) / 1e6;

// optional reads an instant that may be absent. The first instant of the year 1 stands for none.
export function optional(text) {
  const ns = text ? parseInstant(text) : never;
  return ns === never ? undefined : ns;
}

const never = -62_135_596_800_000_000_000n;

const units = { h: 3_600_000, m: 60_000, s: 1000, ms: 1, us: 1e-3, "µs": 1e-3, "μs": 1e-3, ns: 1e-6 };

// parseDuration reads a sum of decimal numbers with units, as Go writes it.
export function parseDuration(text) {
  if (text === "0") return 0;
  const sum = /^([+-]?)((?:(?:\d+\.?\d*|\.\d+)(?:ms|us|µs|μs|ns|h|m|s))+)$/.exec(text);
  if (!sum) throw new Invalid(`duration ${JSON.stringify(text)}`);
  let ms = 0;
  for (const [, n, unit] of sum[2].matchAll(/(\d+\.?\d*|\.\d+)(ms|us|µs|μs|ns|h|m|s)/g)) ms += Number(n) * units[unit];
  if (ms >= 2 ** 63 / 1e6) throw new Invalid(`duration ${JSON.stringify(text)}: want less than 293 years`);
  return sum[1] === "-" ? -ms : ms;
}

// formatDuration writes milliseconds (with any fraction) as Go does.
export function formatDuration(ms) {
  if (ms < 0) return "-" + formatDuration(-ms);
  if (ms === 0) return "0s";
  const ns = Math.round(ms * 1e6);
  if (ns < 1000) return `${ns}ns`;
  if (ns < 1e6) return `${ns / 1e3}µs`;
  if (ns < 1e9) return `${ns / 1e6}ms`;
  const hours = Math.floor(ns / 3.6e12), minutes = Math.floor((ns % 3.6e12) / 6e10), rest = (ns % 6e10) / 1e9;
  const seconds = rest.toFixed(9).replace(/\.?0+$/, ""); // a small number as text has an exponent
  return (hours ? `${hours}h` : "") + (hours || minutes ? `${minutes}m` : "") + `${seconds}s`;
}

// Verbatim is the value of a member that this program does not know, as it was written: JSON.parse would turn
// 12345678901234567890 into 12345678901234567000, and a writer must keep it.
export class Verbatim {
  constructor(text) { this.text = text; }
  toJSON() { return JSON.parse(this.text); }
}

// encode returns the text of a value that is to be stored.
export function encode(value) {
  const members = Object.entries(value).filter(([, v]) => v !== undefined);
  return `{${members.map(([name, v]) => `${JSON.stringify(name)}:${v instanceof Verbatim ? v.text : JSON.stringify(v)}`).join(",")}}`;
}

// rawMember returns the text of a member of a JSON object as it was written, or undefined. Payloads are sent as
// they were written, and JSON.parse would turn 1.50 into 1.5. If a name stands twice, the last one counts, as in
// JSON.parse. For a text that is not JSON it returns anything, or throws a SyntaxError.
export function rawMember(text, name) {
  let i = 0, found;
  const space = () => { while (i < text.length && " \t\r\n".includes(text[i])) i++; };
  const string = () => { for (i++; i < text.length && text[i] !== '"'; i++) if (text[i] === "\\") i++; i++; };
  const value = () => {
    if (text[i] === '"') return string();
    for (let depth = 0; i < text.length; i++) {
      const c = text[i];
      if (c === '"') { string(); i--; continue; }
      if (depth === 0 && (c === "," || c === "}" || c === "]")) return;
      if (c === "{" || c === "[") depth++;
      if (c === "}" || c === "]") depth--;
    }
  };
  space();
  if (text[i++] !== "{") return undefined;
  for (space(); text[i] === '"'; space()) {
    let start = i;
    string();
    const key = text.slice(start, i);
    space();
    i++; // the colon
    space();
    start = i;
    value();
    if (JSON.parse(key) === name) found = text.slice(start, i).trim();
    space();
    if (text[i] === ",") i++;
  }
  return found;
}
