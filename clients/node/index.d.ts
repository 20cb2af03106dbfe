import type { NatsConnection, NodeConnectionOptions } from "@nats-io/transport-node";

/**
 * Connects to NATS: `connect` of `@nats-io/transport-node`. With a login of `cronce auth`, pass `inboxPrefix`, by default
 * `_INBOX.cronce`.
 */
export function connect(options?: NodeConnectionOptions): Promise<NatsConnection>;

/** One attempt at a slot, which its handler receives. */
export interface Slot {
  /** The slot's only name, such as `report:2026-11-21T07:00:00Z`. A triggered run is `report:@KEY`. */
  readonly id: string;
  readonly job: string;
  /** The number of this attempt, from 1. */
  readonly attempt: number;
  /** Grows with each attempt. A database that remembers the largest fence of a slot can refuse a late writer. */
  readonly fence: number;
  /** The name of the node that runs it: one incarnation of this process. */
  readonly node: string;
  /** The payload as text, empty if there is none. */
  readonly payload: string;
  /** The payload as a value, `undefined` if there is none. If it is not JSON, `json` throws a `Permanent`. */
  json<T = unknown>(): T;
  /**
   * Aborts when the attempt must end: its lease is lost (`reason.code` is `LEASE_LOST`), its timeout is over, it is
   * cancelled, or the worker stops.
   */
  readonly signal: AbortSignal;
  /** Sets the slot's result: at most 64 KiB of JSON, stored if the attempt succeeds. The last call counts. */
  result(value: unknown): void;
}

/**
 * Runs one attempt. Its return value, as text (an object: as JSON), is the attempt's output, cut to the job's `output`
 * bytes. An error fails the attempt: its message, with those of its causes, is recorded.
 */
export type Handler = (slot: Slot) => unknown | Promise<unknown>;

/**
 * A permanent error: the slot ends `failed`, without a retry. Any other error may have the property `retryAfter`, the
 * milliseconds until the next attempt.
 */
export class Permanent extends Error {}

export interface RunOptions {
  /** Jobs that this process has handlers for. Slots of all other jobs are left to other workers. */
  handlers: Record<string, Handler>;
  /** Ends the run: running handlers get `grace` to return. */
  signal: AbortSignal;
  /** Default `cronce`. */
  namespace?: string;
  /** The first part of the node's name. Default: the host's name. */
  name?: string;
  /** The queues to serve. Default: `["default"]`. */
  queues?: string[];
  /** Whether to publish due slots too. Default: true. */
  produce?: boolean;
  /** How many handlers run at once, at most. Default: 16. */
  places?: number;
  /** How long running handlers may go on after `signal`, in milliseconds, until `slot.signal` aborts. Default: 25,000. */
  grace?: number;
  /** Milliseconds that this process adds to its clock. For tests. Default: 0. */
  clockOffset?: number;
  /** Is called with each line of the log. Default: no log. */
  log?: (line: string) => void;
}

/**
 * Takes part in the fleet until `options.signal` aborts. The namespace must exist (`cronce setup`),
 * and so must the jobs (`cronce job apply`). It rejects if the settings cannot be read, or when the
 * connection is closed for good.
 */
export function run(nc: NatsConnection, options: RunOptions): Promise<void>;

export interface TriggerOptions {
  /** The same job and key, from any client and however often, are one run. Default: a random UUID. */
  key?: string;
  /** Any JSON, at most 256 KiB. Default: the job's own payload. */
  payload?: unknown;
  /** When to run, before the year 2200. Default, and for a time that has passed: at once. A later time needs nats-server 2.12 or newer. */
  at?: Date;
  namespace?: string;
  /** The name that the run's record keeps as its publisher. Default: `node-client`. */
  node?: string;
  /** How long to repeat a publication that is not acknowledged, in milliseconds. Default: 10,000. */
  timeout?: number;
}

/**
 * Triggers one run of a job, and returns the run's slot ID. If it rejects, call it again with the same key: all calls
 * with one key are one run.
 */
export function trigger(nc: NatsConnection, job: string, options?: TriggerOptions): Promise<string>;

export interface Outcome {
  id: string;
  state: "succeeded" | "failed" | "skipped" | "missed" | "expired" | "cancelled";
  /** How many attempts there were. */
  attempt: number;
  /** The node, or the operator, that wrote the outcome. */
  node: string;
  error?: string;
  output?: string;
  /** What the handler passed to `slot.result`. A number that needs more than 53 bits loses digits. */
  result?: unknown;
  finished: Date;
  /** The ledger's revision of this outcome. */
  revision: number;
}

/**
 * Waits for the outcome of a slot, without a limit: pass a signal, such as `AbortSignal.timeout(60_000)`. It rejects if
 * the login may not read the slot's record, or when the connection is closed for good.
 */
export function wait(nc: NatsConnection, id: string, options?: { namespace?: string; signal?: AbortSignal }): Promise<Outcome>;
