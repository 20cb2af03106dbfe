// Following the changes of a bucket. The key-value client of NATS returns times in milliseconds, but the
// protocol compares nanoseconds. So watch reads the stream of the bucket.
import { DeliverPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { pause } from "./store.js";
import { textOf } from "./values.js";

const auditEvery = 30_000; // ms between two audits, plus or minus a quarter
const tries = 5; // audits, a second apart, before a watch counts as incomplete: a change may be on its way

// Seen has what the watches of one bucket have seen, one after the other: the newest revision of each key, and the
// newest of the bucket. created says when its stream was created.
export class Seen {
  keys = new Map();
  last = 0;
  created = undefined;
}

// watch calls changed({key, text, revision, time, pending}) for the last write of each key, in order, and
// then for each further write, until the signal aborts. The text of a deleted key is undefined. While pending is not
// 0, earlier writes of some keys may be missing, because their newer writes follow. watch calls ready(revision) after
// the writes that existed at the start, and then after each audit.
//
// An audit asks the leader whether the watch has seen all that there is. A key that was removed without a marker (by a
// purge, or by the restore of an older copy) shows in nothing else. If something is missing, watch returns, and the
// caller calls it again with the same seen. It then reports only what differs: changed for what is new, gone(key) for
// what is no longer there. If the stream was created again, or has lost revisions, it calls again() and reports all.
export async function watch(nc, bucket, signal, { changed, ready, gone, again, seen = new Seen(), stream = streamOf }) {
  const source = await stream(nc, bucket), prefix = `$KV.${bucket}.`;
  const { state, created } = await source.info();
  if (seen.created !== undefined && (created !== seen.created || state.last_seq < seen.last)) {
    Object.assign(seen, new Seen());
    again?.();
  }
  seen.created = created;
  const messages = await source.follow(), over = new AbortController(), missing = new Set(seen.keys.keys());
  // A signal that lives long must keep no trace of a watch that has ended.
  signal.addEventListener("abort", () => messages.stop(), { once: true, signal: over.signal });
  if (signal.aborted) messages.stop();
  const listed = async () => {
    for (const key of missing) {
      if (await source.has(prefix + key)) continue; // the listing of a replica that lags
      seen.keys.delete(key);
      gone?.(key);
    }
    void audits(source, seen, over.signal, (last) => ready?.(last)).then((complete) => complete || messages.stop());
  };
  try {
    let isReady = state.messages === 0;
    if (isReady) ready?.(state.last_seq);
    if (isReady) await listed();
    for await (const m of messages) {
      const key = m.subject.slice(prefix.length), marker = m.headers?.get("KV-Operation") || m.headers?.get("Nats-Marker-Reason");
      const { pending } = m.info;
      missing.delete(key);
      seen.last = Math.max(seen.last, m.seq);
      if (!(seen.keys.get(key) >= m.seq)) {
        seen.keys.set(key, m.seq);
        changed({ key, text: marker ? undefined : textOf(m), revision: m.seq, time: m.timestampNanos, pending });
      }
      if (!isReady && pending === 0) {
        isReady = true;
        await listed();
        ready?.(m.seq);
      }
    }
  } finally {
    over.abort();
    messages.stop();
  }
}

// audits makes an audit now and then, until the signal aborts. It returns false if something is missing.
async function audits(source, seen, signal, ready) {
  for (; !signal.aborted; await pause(auditEvery * (0.75 + Math.random() / 2), signal)) {
    for (let n = 1; ; n++) {
      const found = await audit(source, seen).catch(() => undefined); // without an answer, the next audit asks again
      if (signal.aborted || found === undefined) break;
      if (found) { ready(seen.last); break; }
      if (n === tries) return false;
      await pause(1000, signal);
    }
  }
  return true;
}

// audit reports whether a watch has seen all that the leader of its stream has.
async function audit(source, seen) {
  const { state, created } = await source.info(), at = seen.last;
  if (created !== seen.created) return false;
  // A compaction removes markers, and leaves nothing of them but the last sequence of the stream.
  if (state.last_seq > at && !(await source.after(at)) && seen.last === at) seen.last = state.last_seq;
  return state.last_seq === seen.last && state.messages === seen.keys.size;
}

// streamOf returns what watch needs of the stream of a bucket.
async function streamOf(nc, bucket) {
  const stream = `KV_${bucket}`, manager = await jetstreamManager(nc);
  const get = async (query) => {
    const { error } = (await nc.request(`$JS.API.STREAM.MSG.GET.${stream}`, JSON.stringify(query), { timeout: 2000 })).json();
    if (error && error.err_code !== 10037) throw new Error(`read ${stream}: ${error.description}`);
    return !error;
  };
  return {
    info: () => manager.streams.info(stream),
    has: (subject) => get({ last_by_subj: subject }),
    after: (seq) => get({ seq: seq + 1, next_by_subj: `$KV.${bucket}.>` }),
    async follow() {
      // Without a filter: with one, the subject of the request is not among those that a node's login may publish to.
      const consumer = await jetstream(nc).consumers.get(stream, { deliver_policy: DeliverPolicy.LastPerSubject });
      // If a request is lost with its connection, the client notices that after this time.
      return consumer.consume({ max_messages: 100, expires: 5000 });
    },
  };
}
