// A program that uses every type of the package. test/types.test.js compiles it; nothing runs it.
import { Permanent, connect, run, trigger, wait } from "@cronce-io/client";
import type { Handler, Outcome, RunOptions, Slot, TriggerOptions } from "@cronce-io/client";

const stop = new AbortController();
const nc = await connect({ servers: "nats://127.0.0.1:4222", maxReconnectAttempts: -1, tls: { rejectUnauthorized: true } });

const report: Handler = async (slot: Slot) => {
  const known: [string, string, number, number, string, string, AbortSignal] = [slot.id, slot.job, slot.attempt, slot.fence, slot.node, slot.payload, slot.signal];
  slot.result({ known: known.length });
  const { to }: { to: string } = slot.json<{ to: string }>();
  // @ts-expect-error: without a type, the value is unknown
  if (slot.json().to === to) return to;
  if (slot.attempt > 2) throw new Permanent("three attempts are enough");
  if (slot.attempt > 1) throw Object.assign(new Error("not yet"), { retryAfter: 5000 });
  // @ts-expect-error: the attempt is read-only
  slot.attempt = 1;
  return `sent ${slot.id}`;
};

const options: RunOptions = {
  handlers: { report, quick: () => undefined }, signal: stop.signal, namespace: "cronce", name: "web", queues: ["default"], produce: false,
  places: 4, grace: 10_000, clockOffset: 0, log: (line: string) => console.error(line),
};
const running: Promise<void> = run(nc, options);
// @ts-expect-error: without handlers there is nothing to run
void run(nc, { signal: stop.signal });
// @ts-expect-error: an option that does not exist
void run(nc, { ...options, concurrency: 4 });

const once: TriggerOptions = { key: "order-4711", payload: { to: "ops" }, at: new Date(), namespace: "cronce", node: "web", timeout: 1000 };
const id: string = await trigger(nc, "report", once);
await trigger(nc, "report");
// @ts-expect-error: the time is a Date
await trigger(nc, "report", { at: "tomorrow" });

const outcome: Outcome = await wait(nc, id, { signal: AbortSignal.timeout(60_000), namespace: "cronce" });
const facts: [string, number, string, Date, number] = [outcome.id, outcome.attempt, outcome.node, outcome.finished, outcome.revision];
const texts: (string | undefined)[] = [outcome.error, outcome.output];
const state: "succeeded" | "failed" | "skipped" | "missed" | "expired" | "cancelled" = outcome.state;
// @ts-expect-error: wait returns a slot that has its outcome
const open: "running" = outcome.state;
console.log(facts, texts, state, open, outcome.result);
stop.abort();
await running;
await nc.close();
