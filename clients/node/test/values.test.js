import test from "node:test";
import assert from "node:assert/strict";
import { decode, formatDuration, rawMember, textOf } from "../lib/values.js";

test("durations are written as Go reads them", () => {
  const minute = 60_000;
  for (const [ms, text] of [[0, "0s"], [1.5e-6, "2ns"], [0.0015, "1.5µs"], [250, "250ms"], [10_000, "10s"], [90_000, "1m30s"], [100 * minute, "1h40m0s"], [45 * minute + 0.000977, "45m0.000000977s"], [-45 * minute, "-45m0s"], [20_500, "20.5s"]]) {
    assert.equal(formatDuration(ms), text);
  }
});

test("a member is read as JSON.parse reads it", () => {
  for (const [text, name, want] of [
    [`{"a":1.50,"b":"}\\""}`, "a", "1.50"], [`{"a":1.50,"b":"}\\""}`, "b", `"}\\""`], [`{"a":1,"a":2}`, "a", "2"], [`{"a":{"b":[1]},"b":3}`, "b", "3"],
    [` \n{ "a" : [ 1 ] }`, "a", "[ 1 ]"], [`{}`, "a", undefined], [`"{\\"a\\":1}"`, "a", undefined], [`null`, "a", undefined], [`[{"a":1}]`, "a", undefined],
  ]) {
    assert.equal(rawMember(text, name), want, text);
  }
});

test("the search for a member ends in a text that is not JSON", () => {
  for (const text of [`{"a`, `{"a\\`, `{"a":"b`, `{"a":{"b":"c`, `{"a":[1,`, `{"a" "b`, `{"a`.repeat(3)]) {
    try {
      rawMember(text, "x");
    } catch (err) {
      assert.ok(err instanceof SyntaxError);
    }
  }
});

test("a body that begins with U+FEFF is not JSON, as in Go", () => {
  assert.throws(() => decode(textOf({ data: new TextEncoder().encode('\uFEFF{"v":1}') })), /not JSON/);
});
