// Slots, their IDs and their keys (docs/protocol.md, section 1). A slot is
// {job, at} (planned), {job, token} (triggered), {job, at, range: true}; at is whole
// seconds since 1970. A shard of a split slot has shard and shards besides.

const name = /^[A-Za-z0-9_-]{1,64}$/;

export class Invalid extends Error {}

export function checkName(what, text) {
  if (typeof text !== "string" || !name.test(text)) throw new Invalid(`${what} ${JSON.stringify(text)}: want 1 to 64 of A-Z a-z 0-9 _ -`);
  return text;
}

// parseSlot reads an ID. A slot has only one ID, so parseSlot refuses a text that is not what slotID returns.
export function parseSlot(id) {
  const colon = id.indexOf(":");
  if (colon < 0) throw new Invalid(`slot ${JSON.stringify(id)}: no colon`);
  const slot = { job: checkName("job", id.slice(0, colon)) };
  let rest = id.slice(colon + 1);
  const match = /^(.*)#([1-9][0-9]*)of([1-9][0-9]*)$/s.exec(rest);
  if (match && !rest.startsWith("m.") && Number(match[3]) >= 2 && Number(match[3]) <= 256 && Number(match[2]) <= Number(match[3])) {
    rest = match[1];
    slot.shard = Number(match[2]);
    slot.shards = Number(match[3]);
  }
  if (rest.startsWith("@")) {
    slot.token = checkToken(rest.slice(1));
  } else {
    if (rest.startsWith("m.")) {
      slot.range = true;
      rest = rest.slice(2);
    }
    slot.at = Date.parse(rest) / 1000;
  }
  if (Number.isNaN(slot.at) || slotID(slot) !== id) throw new Invalid(`slot ${JSON.stringify(id)}: not how its ID is written`);
  return slot;
}

export function slotID(slot) {
  const suffix = slot.shards ? `#${slot.shard}of${slot.shards}` : "";
  if (slot.token !== undefined) return `${slot.job}:@${slot.token}${suffix}`;
  return `${slot.job}:${slot.range ? "m." : ""}${seconds(slot.at)}${suffix}`;
}

export function slotKey(slot) {
  const suffix = slot.shards ? `.${slot.shard}of${slot.shards}` : "";
  if (slot.token !== undefined) return `${slot.job}.t.${escape(slot.token)}${suffix}`;
  return `${slot.job}.${slot.range ? "m." : ""}${seconds(slot.at).replace(/[-:]/g, "")}${suffix}`;
}

// timerOf returns the subject of the timer of a triggered run.
export const timerOf = (namespace, slot) => `${namespace}.timer.set.${slot.job}.${slotKey(slot).slice(`${slot.job}.t.`.length)}`;

function seconds(at) {
  const text = new Date(at * 1000).toISOString().replace(".000Z", "Z");
  if (!/^\d{4}-/.test(text) || text.startsWith("0000")) throw new Invalid(`an instant of the year ${text.slice(0, 7)}`);
  return text;
}

function checkToken(token) {
  const bytes = Buffer.byteLength(token);
  const wrong = bytes < 1 || bytes > 128 || /[\0-\x1f\x7f]|^[\p{White_Space}\uFEFF]|[\p{White_Space}\uFEFF]$|\/r[0-9]+$/u.test(token) || /#[0-9]+of[0-9]+$/.test(token) || !token.isWellFormed();
  if (wrong) throw new Invalid(`token ${JSON.stringify(token)}: want 1 to 128 bytes of printable UTF-8`);
  return token;
}

function escape(token) {
  let key = "";
  for (const byte of Buffer.from(token)) {
    const c = String.fromCharCode(byte);
    key += /[A-Za-z0-9_-]/.test(c) ? c : "=" + byte.toString(16).toUpperCase().padStart(2, "0");
  }
  return key;
}
