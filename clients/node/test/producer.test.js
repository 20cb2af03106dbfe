import test from "node:test";
import assert from "node:assert/strict";
import { parseEntry } from "../lib/definition.js";
import { Invalid } from "../lib/names.js";
import { Producer } from "../lib/producer.js";
import { formatInstant, fromMs, fromSeconds, parseInstant, toMs } from "../lib/values.js";

const start = parseInstant("2026-11-21T07:00:00Z"), hour = 3_600_000;

// entry is a job with a slot each second, from the start on.
const entry = (name, revision = 1, schedule = "* * * * * *") => parseEntry(JSON.stringify({ v: 1, job: { name, overlap: "allow", plan: { schedule } } }), revision, start);

// fake returns a producer with these jobs, and a broker that does not answer the publications of the jobs in silent.
// at(s) sets the clock to s seconds after the start. sent has the messages: [slot, caught up or missed].
function fake(...names) {
  const sent = [], silent = new Set(), marks = [], clock = { now: start, plausible: true, trusted: true };
  const store = {
    namespace: "ns", nc: {},
    async publish(subject, body, head) {
      const job = subject.split(".").at(-1);
      sent.push([head.get("Cronce-Slot"), head.get("Cronce-Caught-Up") ? "caught up" : head.get("Cronce-Missed") ? "missed" : "on time"]);
      return silent.has(job) ? { unknown: true } : { seq: sent.length };
    },
    async readAny() { return { value: marks.at(-1), revision: marks.length }; },
    async write(bucket, key, value, revision, { trusted }) { return trusted() ? { won: marks.push(value) } : { unknown: true }; },
  };
  const node = {
    name: "n", certain: () => clock.now, trusted: () => clock.trusted, get implausible() { return !clock.plausible; },
    met: true, producers: () => [],
  };
  const entries = new Map(names.map((name) => [name, entry(name)]));
  const registry = { entries, known: { revision: 1, time: start }, blind: () => false, listeners: new Set() };
  const producer = new Producer({ store, node, registry, horizon: 24 * hour, log() {} }), ended = new AbortController();
  const end = () => { ended.abort(); producer.interrupt(); };
  // settled returns when what is answered at once is acknowledged.
  const settled = () => until(() => ![...producer.held].some(([job, { stop }]) => stop && !stop.signal.aborted && !silent.has(job)));
  const round = async (s) => {
    clock.now = start + fromMs(s * 1000);
    producer.again = 0;
    const result = await producer.round(ended.signal).catch((err) => err);
    await settled();
    await producer.advancing;
    return result;
  };
  const mark = () => (marks.length ? toMs(parseInstant(marks.at(-1).time) - start) / 1000 : undefined);
  return { sent, silent, marks, clock, registry, producer, round, mark, end, slots: (job) => sent.map(([id]) => id).filter((id) => id.startsWith(`${job}:`)) };
}

// until waits until a condition holds.
const until = async (holds) => { while (!holds()) await new Promise((done) => setTimeout(done, 5)); };

const slot = (job, s) => `${job}:2026-11-21T07:${String(Math.floor(s / 60)).padStart(2, "0")}:${String(s % 60).padStart(2, "0")}Z`;

test("producer: a job whose publications are not acknowledged holds up no other job, and the watermark", async (t) => {
  const { silent, slots, round, mark, end } = fake("good", "bad");
  t.after(end);
  await round(1.1);
  await round(1.2);
  assert.equal(mark(), 1.2);
  silent.add("bad");
  for (const s of [2.1, 3.1, 3.2]) await round(s);
  assert.deepEqual(slots("good"), [1, 2, 3].map((s) => slot("good", s)));
  assert.deepEqual([...new Set(slots("bad"))], [1, 2].map((s) => slot("bad", s)));
  assert.equal(mark(), 1.2, "the watermark passed a slot that is not acknowledged");
});

test("producer: a held job goes on when it is acknowledged, and the watermark with it", async (t) => {
  const { producer, silent, slots, round, mark, end } = fake("good", "bad");
  t.after(end);
  silent.add("bad");
  await round(1.1);
  await round(2.1);
  assert.equal(mark(), undefined, "without a watermark, nothing that is not acknowledged is covered");
  silent.clear();
  await until(() => !producer.held.get("bad").stop); // the next copy is acknowledged
  await round(3.1);
  await round(3.2);
  assert.deepEqual([...new Set(slots("bad"))], [1, 2, 3].map((s) => slot("bad", s)));
  assert.equal(mark(), 3.2);
});

test("producer: the slots of a held job that are late by now are judged anew, and one of them is tried first", async (t) => {
  const { producer, sent, silent, round, end } = fake("bad");
  t.after(end);
  silent.add("bad");
  await round(1.1);
  await round(62); // a minute later
  await until(() => !producer.held.get("bad").stop);
  const before = sent.length;
  await round(62.1);
  const tried = new Set(sent.slice(before).map(([id]) => id));
  assert.equal(tried.size, 1);
  silent.clear();
  await until(() => !producer.held.get("bad").stop);
  const last = new Map(sent.slice(before));
  assert.equal(last.size, 62);
  assert.deepEqual([1, 2, 3].map((s) => last.get(slot("bad", s))), ["missed", "caught up", "on time"]);
});

test("producer: a slot that was due when its job was removed is published, although the clock is behind", async (t) => {
  const { slots, registry, producer, round, mark, end } = fake("gone");
  t.after(end);
  await round(0.5);
  registry.entries.clear();
  registry.known = { revision: 2, time: start + fromMs(1100) };
  producer.ended.push({ ...entry("gone"), ended: start + fromMs(1100) });
  await round(0.9); // the clock is 0.2 s behind the broker's, as far as its error goes
  await round(1.1);
  assert.deepEqual(slots("gone"), [slot("gone", 1)]);
  await round(2.1);
  await round(2.2);
  assert.deepEqual([slots("gone").length, producer.ended.length, mark()], [1, 0, 2.2]);
});

test("producer: a clock that is set wrong stops copies and the watermark", async (t) => {
  const { sent, silent, clock, round, marks, producer, end } = fake("good", "bad");
  t.after(end);
  await round(1.1);
  silent.add("bad");
  await round(2.1);
  const written = marks.length;
  clock.plausible = false;
  const copies = sent.length;
  await producer.advance({ time: start + fromSeconds(1), revision: 1 }, new AbortController().signal);
  await new Promise((done) => setTimeout(done, 300));
  assert.deepEqual([sent.length, marks.length], [copies, written]);
  assert.match((await round(3.1)).message, /hour/);
  clock.plausible = true;
  silent.clear();
  await round(63); // the watermark is read again, and what is late is judged anew
  await until(() => !producer.held.get("bad").stop);
  assert.deepEqual(sent.slice(copies).find(([id]) => id === slot("bad", 2)), [slot("bad", 2), "caught up"]);
});

test("producer: a watermark that cannot be written holds up no slot", async (t) => {
  const { producer, slots, round, end } = fake("good");
  t.after(end);
  producer.store.write = () => new Promise(() => {});
  for (const s of [1, 2]) {
    void round(s + 0.1);
    await until(() => slots("good").length === s);
  }
  assert.deepEqual(slots("good"), [1, 2].map((s) => slot("good", s)));
});

test("producer: a job whose slots cannot be computed holds up no other job, and the watermark", async (t) => {
  const { registry, producer, slots, round, mark, end } = fake("bad", "good");
  t.after(end);
  const said = [];
  producer.log = (line) => said.push(line);
  registry.entries.get("bad").plans[0].schedule.next = () => { throw new Invalid("too many slots in a row are excluded"); };
  assert.equal(producer.next(), start + fromMs(1000));
  await round(1.1);
  await round(2.1);
  assert.deepEqual([slots("good"), slots("bad"), mark()], [[slot("good", 1), slot("good", 2)], [], undefined]);
  assert.deepEqual(said, ["job bad: too many slots in a row are excluded"]);
  registry.entries.set("bad", entry("bad", 2));
  for (const s of [3.1, 3.2]) await round(s);
  assert.equal(mark(), 3.2);
});

test("producer: a watermark that an operator has moved back is not overwritten, and what it uncovers is published", async (t) => {
  for (const begin of [
    async ({ round }) => { for (const s of [1.1, 1801.1, 1801.2]) await round(s); }, // the clock was half an hour ahead
    async ({ marks }) => { marks.push({ v: 1, time: formatInstant(start + fromSeconds(1801)), registry_revision: 1, registry_time: formatInstant(start) }); },
  ]) {
    const all = fake("good"), { slots, round, marks, mark, end, sent } = all;
    t.after(end);
    await begin(all);
    for (const s of [2.1, 3.1, 4.1]) await round(s);
    assert.ok(mark() >= 1801);
    sent.length = 0;
    marks.push({ v: 1, time: formatInstant(start + fromSeconds(1)), registry_revision: 0, registry_time: formatInstant(start) });
    for (const s of [5.1, 5.2, 5.3]) await round(s);
    assert.deepEqual(slots("good"), [2, 3, 4, 5].map((s) => slot("good", s)));
    assert.ok(mark() > 5 && mark() < 6, `the watermark is at ${mark()}`);
  }
});

test("producer: a watermark that was deleted is written again, and no slot is published twice for that", async (t) => {
  const { slots, round, producer, marks, mark, end, sent } = fake("good");
  t.after(end);
  for (const s of [1.1, 2.1]) await round(s);
  marks.push(undefined);
  sent.length = 0;
  await round(3.1);
  await round(3.2);
  assert.deepEqual([slots("good"), mark(), producer.position.revision], [[slot("good", 3)], 3.2, 1]);
});

test("a producer that was away sends few messages of a job at once, and all in the end", async () => {
  const { producer, end } = fake(), sent = [];
  let open = 0, most = 0;
  producer.publish = async ({ headers }) => {
    most = Math.max(most, ++open);
    await undefined;
    open--;
    sent.push(headers["Cronce-Slot"]);
  };
  const messages = Array.from({ length: 1000 }, (_, i) => ({ headers: { "Cronce-Slot": `j:@${i}` } })), range = { headers: { "Cronce-Slot": "range" } };
  assert.equal(await producer.publishAll({}, messages, [range], new AbortController().signal), true);
  assert.deepEqual([most <= 16, sent.length, sent.at(-1)], [true, 1001, "range"]);
  end();
});
