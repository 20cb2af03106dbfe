import assert from "node:assert/strict";
import { test } from "node:test";

import { entrant } from "../lib/lock.js";

test("a slot with a record may have been reopened since it entered its lock", () => {
  const slot = { job: "report", token: "one" };
  const view = { now: 0n, entry: { job: { name: "report", overlap: "queue" } } };
  for (const [message, record, reopened] of [
    [{ slot }, undefined, false],
    [{ slot }, { state: "retrying", attempts: [] }, true],
    [{ slot, backfill: true }, undefined, true],
    [{ slot, offer: 2 }, undefined, true],
  ]) assert.equal(Boolean(entrant({ message, published: 0n }, { ...view, record }).reoffered), reopened);
});
