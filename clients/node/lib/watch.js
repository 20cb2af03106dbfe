// Following the changes of a bucket. The key-value client of NATS returns times in milliseconds, but the
// protocol compares nanoseconds. So watch reads the stream of the bucket.
import { DeliverPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { stopWith } from "./store.js";
import { textOf } from "./values.js";

// watch calls changed({key, text, revision, time, pending}) for the last write of each key, in order, and
// then for each further write, until the signal aborts. It calls ready(revision) once, after the writes that
// existed at the start. The text of a deleted key is undefined. While pending is not 0, earlier writes of
// some keys may be missing, because their newer writes follow.
export async function watch(nc, bucket, signal, { changed, ready }) {
  const stream = `KV_${bucket}`, prefix = `$KV.${bucket}.`;
  const { state } = await (await jetstreamManager(nc)).streams.info(stream);
  const consumer = await jetstream(nc).consumers.get(stream, { filter_subjects: [`${prefix}>`], deliver_policy: DeliverPolicy.LastPerSubject });
  // If a request is lost with its connection, the client notices that after this time.
  const messages = await consumer.consume({ max_messages: 1000, expires: 5000 });
  stopWith(signal, messages);
  let isReady = state.messages === 0;
  if (isReady) ready?.(state.last_seq);
  for await (const m of messages) {
    const marker = m.headers?.get("KV-Operation") || m.headers?.get("Nats-Marker-Reason");
    const { pending } = m.info;
    changed({ key: m.subject.slice(prefix.length), text: marker ? undefined : textOf(m), revision: m.seq, time: m.timestampNanos, pending });
    if (!isReady && pending === 0) {
      isReady = true;
      ready?.(m.seq);
    }
  }
}
