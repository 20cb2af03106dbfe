// Reading and writing the keys of buckets (docs/protocol.md, section 4).
import { setMaxListeners } from "node:events";
import { PermissionViolationError, TimeoutError, createInbox, headers as newHeaders } from "@nats-io/transport-node";
import { decodeAs } from "./bounds.js";
import { Invalid, checkName, parseSlot, slotKey } from "./names.js";
import { encode } from "./values.js";

// longest is the longest time of a timer of Node.js, 24.8 days, in ms. A longer one fires at once.
export const longest = 2 ** 31 - 1;

export const pause = (ms, signal) => new Promise((done) => {
  if (signal?.aborted) return done();
  const timer = setTimeout(end, Math.min(ms, longest));
  signal?.addEventListener("abort", end, { once: true });
  function end() {
    clearTimeout(timer);
    signal?.removeEventListener("abort", end);
    done();
  }
});

// abortAfter is AbortSignal.timeout for any duration: that takes whole milliseconds only.
export const abortAfter = (ms) => AbortSignal.timeout(Math.min(Math.ceil(ms), longest));

// unlimited returns a signal for which any number of writes may wait. Node.js warns of more than ten listeners.
export const unlimited = (signal) => {
  setMaxListeners(0, signal);
  return signal;
};

// stopWith stops an iterator when the signal aborts, or has aborted.
export const stopWith = (signal, iterator) => {
  if (signal.aborted) iterator.stop();
  else signal.addEventListener("abort", () => iterator.stop(), { once: true });
};

// The error codes that mean "not answered": the write may have happened, or may still happen.
const unanswered = new Set([10004, 10008, 10009, 10075, 10118, 10158, 10163, 10194]);
const attempt = 1000; // ms until the next copy of an unanswered message is sent
const listening = 60_000; // ms until repeat stops waiting for the answer to a copy
const silence = 5000; // ms without a message until batch gives up
const page = 1000; // messages that finds asks for at once, unless its query says how many

// repeat sends copies of one message until the answer to one of them says what happened, and returns
// that. It returns undefined if the signal aborts first. send(n) sends copy n, and returns undefined if
// the answer says nothing. pauses(n) is the pause before copy n, in ms. A late answer counts too: on a
// slow broker, each answer comes after the next copy was sent.
export function repeat(send, pauses, signal) {
  return new Promise((done, fail) => {
    let timer, over = false;
    const end = (settled) => {
      over = true;
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      done(settled);
    };
    const abort = () => end(undefined);
    const copy = (n) => {
      let waits = true;
      const next = () => {
        if (over || !waits) return;
        waits = false;
        clearTimeout(timer);
        timer = setTimeout(copy, pauses(n + 1), n + 1);
      };
      timer = setTimeout(next, attempt);
      send(n).then((found) => (found && !over ? end(found) : next()), (err) => { fail(err); end(); });
    };
    if (signal?.aborted) return abort();
    signal?.addEventListener("abort", abort, { once: true });
    copy(0);
  });
}

// turn returns a promise that resolves when what has been received by now was handled. The client of NATS then sends in one
// write to its socket what all those publish that waited for it: a write costs more than most of what a slot needs.
let turning;
export function turn() {
  turning ??= new Promise((done) => setImmediate(() => {
    turning = undefined;
    done();
  }));
  return turning;
}

// backOff is the pause before copy n of a publication.
export const backOff = (n) => Math.min(25 * 2 ** n, 1000);

const kinds = { ledger: "record", jobs: "definition", nodes: "node" };
const kindOf = (bucket, key) => kinds[bucket] ?? (/^(lock|handlers)\./.exec(key)?.[1] ?? key);

// keyOf returns the key that a value of a kind names.
const keyOf = {
  record: (v) => slotKey(parseSlot(v.id)),
  definition: (v) => v.job?.name,
  node: (v) => v.node,
  lock: (v) => `lock.${v.job}`,
  handlers: (v) => `handlers.${v.node}`,
};

// decodeOf reads the value of a key. A value that names another key is invalid.
export function decodeOf(bucket, key, text) {
  const kind = kindOf(bucket, key), value = decodeAs(kind, text), named = keyOf[kind]?.(value) ?? key;
  if (named !== key) throw new Invalid(`the value of ${bucket}/${key} names ${named}`);
  return value;
}

export class Store {
  // direct permits reads from any replica if the login may not read at the leader, as a caller's. A node must not use it.
  constructor(nc, namespace, { direct = false } = {}) {
    checkName("namespace", namespace);
    Object.assign(this, { nc, namespace, direct });
    this.writes = 0;
  }

  // read reads a key at the stream's leader: {text, value, revision, time}. A key that does not exist, or
  // that was deleted, has no value; the next write then names this revision. read throws if the leader does
  // not answer in time, or if the value cannot be decoded.
  async read(bucket, key) {
    const stream = `KV_${this.namespace}_${bucket}`, subject = `$KV.${this.namespace}_${bucket}.${key}`;
    const answer = await this.last(stream, subject);
    const { error, message } = answer.json();
    if (error?.err_code === 10037) return { revision: 0 };
    if (error) throw Object.assign(new Error(`read ${bucket}/${key}: ${error.description}`), { code: error.err_code, refused: !unanswered.has(error.err_code) });
    const head = Buffer.from(message.hdrs ?? "", "base64").toString();
    const found = { revision: message.seq, time: message.time };
    const nonce = /^Cronce-Nonce: *(.*?)\r?$/m.exec(head)?.[1];
    if (/^(KV-Operation: *(DEL|PURGE)|Nats-Marker-Reason:)/m.test(head)) return { ...found, nonce };
    const text = Buffer.from(message.data ?? "", "base64").toString();
    try {
      const value = decodeOf(bucket, key, text);
      return { ...found, text, value, nonce: value.nonce };
    } catch (err) {
      throw Object.assign(err, { revision: found.revision });
    }
  }

  // last asks the stream's leader for the last message on a subject.
  last(stream, subject) {
    return this.nc.request(`$JS.API.STREAM.MSG.GET.${stream}`, JSON.stringify({ last_by_subj: subject }), { timeout: 2 * attempt }).catch((err) => this.anyReplica(stream, subject, err));
  }

  // anyReplica answers a request that a login may not make with a direct get.
  async anyReplica(stream, subject, err) {
    if (!this.direct || !(err.cause instanceof PermissionViolationError || err instanceof PermissionViolationError)) throw err;
    const m = await this.nc.request(`$JS.API.DIRECT.GET.${stream}.${subject}`, "", { timeout: 2 * attempt });
    if (m.headers?.code === 404) return { json: () => ({ error: { err_code: 10037 } }) };
    const head = (m.headers?.keys() ?? []).map((name) => `${name}: ${m.headers.get(name)}\r\n`).join("");
    const [seq, time] = [Number(m.headers?.get("Nats-Sequence")), m.headers?.get("Nats-Time-Stamp")];
    if (!seq) throw new Error(`read ${stream}: not a message`);
    return { json: () => ({ message: { seq, time, hdrs: Buffer.from(head).toString("base64"), data: Buffer.from(m.data).toString("base64") } }) };
  }

  // readAny is read, but returns {revision, unreadable: error} if the value cannot be decoded.
  async readAny(bucket, key) {
    try {
      return await this.read(bucket, key);
    } catch (err) {
      if (!(err instanceof Invalid) || err.revision === undefined) throw err;
      return { revision: err.revision, unreadable: err };
    }
  }

  // has reports whether a stream has a message on a subject. A stream that does not exist has none.
  async has(stream, subject) {
    const answer = await this.last(stream, subject);
    const { error } = answer.json();
    if (error && error.err_code !== 10037 && error.err_code !== 10059) throw new Error(`read ${stream}: ${error.description}`);
    return !error;
  }

  // first asks any replica for the first message of a stream that a query finds. It returns undefined if the login may not
  // read the stream.
  first(stream, query) {
    return this.nc.request(`$JS.API.DIRECT.GET.${stream}`, JSON.stringify(query), { timeout: 2 * attempt }).catch((err) => {
      if (err.cause instanceof PermissionViolationError) return undefined;
      throw err;
    });
  }

  // finds reports whether match(m) is true for one of the first most messages of a stream that a query finds, from its
  // seq on. It reads them in pages, because a server sends no more than its max_pending in one answer.
  async finds(stream, query, most, match) {
    let found = false;
    for (let { seq } = query, left = most; seq && !found && left > 0;) {
      let last = 0;
      const pending = await this.batch(stream, { ...query, seq, batch: Math.min(left, query.batch ?? page) }, (m) => {
        last = m.seq;
        left--;
        return (found = match(m));
      });
      seq = pending > 0 && last > 0 ? last + 1 : 0;
    }
    return found;
  }

  // batch calls each(m) for the messages that any replica finds for a query, {subject, seq, headers, data}, until each
  // returns true. It returns how many more there are. It throws if no message comes for five seconds. The client's own
  // batch leaves its subscription behind, and ends after five seconds although messages arrive.
  async batch(stream, query, each) {
    const inbox = createInbox(this.nc.options.inboxPrefix);
    let sub, timer, over = false;
    try {
      return await new Promise((done, fail) => {
        const wait = () => {
          clearTimeout(timer);
          timer = setTimeout(() => fail(new Error(`read ${stream}: not answered`, { cause: new TimeoutError() })), silence);
        };
        const callback = (err, m) => {
          if (err) return fail(err);
          if (over) return; // it was received with the message that ended the batch
          wait();
          const { headers, data } = m;
          const get = (name) => headers?.get(name) ?? "", pending = Number(get("Nats-Num-Pending"));
          if (headers?.code === 404) return done(0); // nothing
          if (headers?.code === 204) return done(pending); // the end of the batch
          if (headers?.code) return fail(new Error(`read ${stream}: ${headers.description || headers.code}`));
          try {
            over = Boolean(each({ subject: get("Nats-Subject"), seq: Number(get("Nats-Sequence")), headers, data }));
            if (over) done(pending);
          } catch (err) {
            fail(err);
          }
        };
        sub = this.nc.subscribe(inbox, { callback });
        wait();
        this.nc.publish(`$JS.API.DIRECT.GET.${stream}`, JSON.stringify(query), { reply: inbox });
      });
    } finally {
      clearTimeout(timer);
      sub?.unsubscribe();
    }
  }

  // write stores a value if revision is the last one of its key. It returns {won: revision}, {lost: true},
  // or {unknown: true} if the signal aborts before the result is known. Until then it repeats the same
  // bytes at the same revision: nothing else settles a write that was not answered. It sends a copy only if
  // trusted() returns true, because the process may have slept before.
  async write(bucket, key, value, revision, { node, signal, trusted = () => true, extra } = {}) {
    const nonce = `${node}/${++this.writes}`;
    const bytes = encode({ ...value, nonce });
    const head = newHeaders();
    head.set("Nats-Expected-Last-Subject-Sequence", String(revision));
    head.set("Nats-Expected-Stream", `KV_${this.namespace}_${bucket}`);
    for (const [name, text] of Object.entries(extra ?? {})) head.set(name, text);
    const open = new Set(); // copies that may have been stored, or may still be
    const send = async (n) => {
      open.add(n);
      await turn();
      if (!trusted()) {
        open.delete(n);
        return undefined;
      }
      const answer = await this.publish(`$KV.${this.namespace}_${bucket}.${key}`, bytes, head);
      if (answer.seq) return { won: answer.seq };
      if (answer.unknown) return undefined;
      open.delete(n);
      if (answer.code === 10071 || answer.code === 10164) return this.conflict(bucket, key, revision, nonce, answer.code);
      return open.size === 0 ? { refused: answer.description } : undefined;
    };
    const settled = await repeat(send, (n) => Math.min(50 * n, 1000), signal);
    if (settled?.refused !== undefined) throw new Error(`write ${bucket}/${key}: ${settled.refused}`);
    return settled ?? { unknown: true };
  }

  // conflict reads the key after the server has reported a conflict: {won}, {lost}, or undefined if the
  // stored value does not explain the conflict.
  async conflict(bucket, key, revision, nonce, code) {
    const found = await this.readAny(bucket, key).catch(() => undefined); // a value that cannot be read is not that of this write
    if (!found) return undefined;
    if (found.nonce === nonce) return { won: found.revision };
    if (found.revision > revision) return { lost: true };
    if (found.revision === 0 && revision > 0 && code === 10071) return { lost: true };
    return undefined;
  }

  // publish sends one message to a stream: {seq, duplicate}, {code, description}, or {unknown}. denied says that the login may not
  // publish to the subject. If several copies are under way, it may be about any of them.
  async publish(subject, body, head) {
    let answer;
    try {
      answer = (await this.nc.request(subject, body, { headers: head, timeout: listening })).json();
    } catch (err) {
      return { unknown: true, denied: err.cause instanceof PermissionViolationError, description: err.message };
    }
    if (!answer?.error) return answer?.seq ? { seq: answer.seq, ...(answer.duplicate && { duplicate: true }) } : { unknown: true, description: "not an acknowledgement" };
    const { err_code: code, description } = answer.error;
    const busy = unanswered.has(code) || (code === 10077 && !/maximum/.test(description));
    return { code, description, unknown: busy };
  }
}
