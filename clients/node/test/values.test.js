import test from "node:test";
import assert from "node:assert/strict";
import { formatDuration } from "../lib/values.js";

test("durations are written as Go reads them", () => {
  const minute = 60_000;
  for (const [ms, text] of [[0, "0s"], [1.5e-6, "2ns"], [0.0015, "1.5µs"], [250, "250ms"], [10_000, "10s"], [90_000, "1m30s"], [100 * minute, "1h40m0s"], [45 * minute + 0.000977, "45m0.000000977s"], [-45 * minute, "-45m0s"], [20_500, "20.5s"]]) {
    assert.equal(formatDuration(ms), text);
  }
});
