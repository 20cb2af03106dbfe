// What a handler gets and gives: its payload, its output, and what it throws.

// Permanent is an error without a retry. Any other error may have retryAfter, the ms until the next attempt.
export class Permanent extends Error {}

// jsonOf returns the value of a payload. One that is not JSON will not be JSON at the next attempt either.
export function jsonOf(payload) {
  try {
    return payload === "" ? undefined : JSON.parse(payload);
  } catch (err) {
    throw new Permanent(`the payload is not JSON: ${err.message}`);
  }
}

// textOf returns the text of whatever a handler threw, with its causes: that of fetch says no more than "fetch failed".
// It does not throw, and neither does delayOf, which returns the delay that the error asks for: after an attempt that did
// not complete, the slot would be claimed again by the same attempt.
export function textOf(err) {
  try {
    return causesOf(err, 5).join(": ") || "failed, and did not say why";
  } catch {
    return "failed, and did not say why";
  }
}

// causesOf returns the texts of an error and of its causes, at most most of them. A cause that the text before it
// contains is left out. The errors of an AggregateError count as one cause.
function causesOf(err, most) {
  if (err === undefined || err === null || most === 0) return [];
  const text = String(err.message ?? (err instanceof Error ? "" : outputOf(err))), list = Array.isArray(err.errors) ? err.errors.slice(0, 5) : [];
  const several = list.map((one) => causesOf(one, most - 1).join(": ")).filter(Boolean).join("; ");
  const rest = [...(several ? [several] : []), ...causesOf(err.cause, most - 1)];
  return [text, ...rest].filter((each, i, all) => each && !all[i - 1]?.includes(each));
}

// outputOf returns the text of whatever a handler returned: of an object that has no text of its own, its JSON. It does not
// throw: the handler has done its work.
export function outputOf(output) {
  if (output === undefined || output === null) return "";
  try {
    if (typeof output === "object" && (Array.isArray(output) || [undefined, Object.prototype.toString].includes(output.toString))) return JSON.stringify(output) ?? String(output);
  } catch {} // such as a circle
  try {
    return String(output);
  } catch {
    return "";
  }
}

export function delayOf(err) {
  try {
    return Number.isFinite(err?.retryAfter) ? Math.min(Math.max(err.retryAfter, 0), 3e12) : undefined; // at most a century
  } catch {
    return undefined;
  }
}
