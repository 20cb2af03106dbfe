// A bucket as it changes. The key-value client hands out a key's time in milliseconds;
// the protocol compares nanoseconds, so this reads the stream behind the bucket.
import { DeliverPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";

// watch calls changed({key, text, revision, time, pending}) for the last write of each key, in
// order, and for each one that comes, and ready(revision) once, when all that was there
// at the start has been told. A marker has no text. While pending is not 0, a write up to revision
// may have been left out for a newer one of its key, which is yet to come. It ends with the signal.
export async function watch(nc, bucket, signal, { changed, ready }) {
  const stream = `KV_${bucket}`, prefix = `$KV.${bucket}.`;
  const { state } = await (await jetstreamManager(nc)).streams.info(stream);
  const consumer = await jetstream(nc).consumers.get(stream, { filter_subjects: [`${prefix}>`], deliver_policy: DeliverPolicy.LastPerSubject });
  // A request that was lost with its connection is noticed after this long.
  const messages = await consumer.consume({ max_messages: 1000, expires: 5000 });
  signal.addEventListener("abort", () => messages.stop(), { once: true });
  let told = state.messages === 0;
  if (told) ready?.(state.last_seq);
  for await (const m of messages) {
    const marker = m.headers?.get("KV-Operation") || m.headers?.get("Nats-Marker-Reason");
    const { pending } = m.info;
    changed({ key: m.subject.slice(prefix.length), text: marker ? undefined : m.string(), revision: m.seq, time: m.timestampNanos, pending });
    if (!told && pending === 0) {
      told = true;
      ready?.(m.seq);
    }
  }
}
