// Time zones, from the rules that this Node.js was built with. Their release is process.versions.tz, which
// the node's record contains.
import { Invalid } from "./names.js";

const zones = new Map();
const year1973 = Date.UTC(1973, 0, 1) / 1000;

export function checkZone(name) {
  if (!zones.has(name)) zones.set(name, name === "UTC" ? { offset: () => 0, fixed: true } : load(name));
  return zones.get(name);
}

function load(name) {
  if (!/^[A-Z][A-Za-z0-9+_-]*(\/[A-Za-z0-9+_-]+)*$/.test(name)) throw new Invalid(`timezone ${JSON.stringify(name)}: want an IANA name`);
  let format;
  try {
    format = new Intl.DateTimeFormat("en-US", {
      timeZone: name, calendar: "gregory", hourCycle: "h23", era: "short",
      year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
    });
  } catch {
    throw new Invalid(`timezone ${JSON.stringify(name)}: this program does not know it`);
  }
  const minutes = new Map();
  const zone = {
    spans: [], // those that change has found
    offset(at) {
      // Since 1973, clocks change only at full minutes, so one offset holds for a minute.
      if (at < year1973) return offset(at);
      const minute = Math.floor(at / 60);
      if (minutes.size > 100_000) minutes.clear();
      if (!minutes.has(minute)) minutes.set(minute, offset(at));
      return minutes.get(minute);
    },
  };
  return zone;

  function offset(at) {
    const text = format.format(at * 1000); // 11/21/2026 AD, 08:00:00; formatToParts takes five times as long
    const [month, day, year, hour, minute, second] = text.match(/\d+/g).map(Number);
    const local = new Date(0);
    local.setUTCFullYear(text.includes("B") ? 1 - year : year, month - 1, day);
    local.setUTCHours(hour, minute, second);
    return local.getTime() / 1000 - at;
  }
}

const probe = 86400;
const week = 7 * probe;
const [firstChange, lastRule] = [1800, 2100].map((year) => Date.UTC(year, 0, 1) / 1000); // until then no zone has changed, and from then on the changes follow rules
const forever = Date.UTC(10000, 0, 1) / 1000;

// spansFrom yields spans, periods in which the zone's offset does not change: {start, end, offset, before,
// after}. before and after are the offsets of the previous and the next span. The first one begins ten days
// before the instant after, so that a change shortly before that instant is seen.
export function* spansFrom(zone, after) {
  if (zone.fixed) {
    yield { start: -forever, end: forever, offset: 0 };
    return;
  }
  let start = after - 10 * probe, before;
  let offset = zone.offset(start);
  while (start < forever) {
    const stop = change(zone, start, offset);
    const following = stop < forever ? zone.offset(stop) : undefined;
    yield { start, end: stop, offset, before, after: following };
    [start, before, offset] = [stop, offset, following];
  }
}

// change returns the first instant after start that has another offset. If it finds none within ten years, it
// returns the end of these.
function change(zone, start, offset) {
  const known = zone.spans.find((s) => s.start <= start && start < s.end);
  if (known) return known.end;
  const end = findChange(zone, start, offset);
  zone.spans.push({ start, end });
  return end;
}

function findChange(zone, start, offset) {
  for (let at = start, step; at < Math.min(start + 3660 * probe, forever); at += step) {
    step = at < firstChange - week || at > lastRule ? week : probe;
    if (zone.offset(at + step) === offset) continue;
    let low = at, high = at + step; // low has the offset, high another
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      if (zone.offset(middle) === offset) low = middle;
      else high = middle;
    }
    return high;
  }
  return Math.min(start + 3660 * probe, forever);
}
