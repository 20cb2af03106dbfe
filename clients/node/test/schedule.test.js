import test from "node:test";
import assert from "node:assert/strict";
import { parseSchedule } from "../lib/schedule.js";

const seconds = (text) => Date.parse(text) / 1000;

test("a schedule of every second passes over days that are excluded", () => {
  for (const [plan, after, next] of [
    [{ schedule: "@every 1s", exclude: ["2026-12-25", "2026-12-26"] }, "2026-12-24T23:59:59Z", "2026-12-27T00:00:00Z"],
    [{ schedule: "* * * * * *", exclude: ["* * * 12 *"] }, "2026-11-30T23:59:59Z", "2027-01-01T00:00:00Z"],
    [{ schedule: "* * * * * *", exclude: ["* * 25-26 10 *"], timezone: "Europe/Berlin" }, "2026-10-24T21:59:59Z", "2026-10-26T23:00:00Z"], // a day of 25 hours
    [{ schedule: "* * * * *", exclude: ["0-29 * * 3-8 *", "30-59 * * 3-8 *"] }, "2026-03-05T00:00:00Z", "2026-09-01T00:00:00Z"], // two expressions exclude a day together
    [{ schedule: "* * * * * *", exclude: ["0-29 * * * *", "30-58 * * * *", "0-58 59 23 * * *"] }, "2026-03-05T23:00:00Z", "2026-03-05T23:59:59Z"],
    [{ schedule: "* * * * * *", exclude: ["* 0-22 * * *", "2026-03-29", "2026-03-30"], timezone: "Europe/Berlin" }, "2026-03-28T22:59:59Z", "2026-03-31T21:00:00Z"], // a day of 23 hours
  ]) assert.equal(parseSchedule("j", plan).next(seconds(after)), seconds(next), JSON.stringify(plan));
});

test("a daily schedule has no further slot if all of its slots are excluded from then on", () => {
  // In 1981 a gap moved one of them to 00:30.
  const plan = { schedule: "@daily", exclude: ["*/4 */2 * * *"], timezone: "Australia/Lord_Howe" };
  assert.equal(parseSchedule("j", plan).next(seconds("2026-11-26T00:00:00Z")), undefined);
});
