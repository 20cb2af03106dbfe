// The lines of jobs: the slots that wait until other slots of their jobs have ended (docs/protocol.md, section 13).
import { headers as newHeaders } from "@nats-io/transport-node";
import { Invalid, parseSlot } from "./names.js";
import { backOff, repeat } from "./store.js";
import { decode, parseInstant, textOf } from "./values.js";

const window = 50; // entries that are read at once

export class Lines {
  constructor(store) { this.store = store; }

  get stream() { return `${this.store.namespace}_waiting`; }
  subject(job) { return `${this.store.namespace}.wait.${job}`; }

  // put puts a slot into its job's line. revision is that of its record, which is waiting. It repeats the message until it
  // is answered, and returns the entry's sequence, or undefined if the signal aborts first.
  async put(slot, job, revision, signal) {
    const head = newHeaders();
    head.set("Nats-Msg-Id", `${slot.id}/w${revision}`);
    head.set("Nats-Expected-Stream", this.stream);
    const body = JSON.stringify({ v: 1, id: slot.id, at: slot.at, ...(slot.on_time && { on_time: true }) });
    const answer = await repeat(async () => {
      const { seq, unknown, description } = await this.store.publish(this.subject(job), body, head);
      return seq ? { seq } : unknown ? undefined : { refused: description };
    }, backOff, signal);
    if (answer?.refused !== undefined) throw new Error(`put ${slot.id} into the line of its job: ${answer.refused}`);
    return answer?.seq;
  }

  // read returns the first entries of a job's line at or after a sequence, in stream order. If it returns none, there was
  // none when the stream's leader answered: any other replica may lag. An entry that cannot be read has only its sequence.
  async read(job, from) {
    const query = { seq: Math.max(from, 1), next_by_subj: this.subject(job) }, entries = [];
    await this.store.batch(this.stream, { ...query, batch: window }, (m) => void entries.push(parseEntry(job, textOf(m), m.seq)));
    if (entries.length) return entries;
    const { error, message } = (await this.store.nc.request(`$JS.API.STREAM.MSG.GET.${this.stream}`, JSON.stringify(query), { timeout: 2000 })).json();
    if (error?.err_code === 10037) return [];
    if (error) throw new Error(`read the line of ${job}: ${error.description}`);
    return [parseEntry(job, Buffer.from(message.data ?? "", "base64").toString(), message.seq)];
  }
}

// parseEntry reads the message of an entry.
export function parseEntry(job, text, sequence) {
  try {
    const { id, at, on_time } = decode(text), slot = parseSlot(String(id));
    parseInstant(at);
    if (slot.job !== job || slot.shards || ![undefined, null, true, false].includes(on_time)) return { sequence };
    return { id, at, on_time: Boolean(on_time), sequence };
  } catch (err) {
    if (!(err instanceof Invalid)) throw err;
    return { sequence };
  }
}
