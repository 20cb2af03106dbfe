//go:build kit && unix

package conformance_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/lab/conformance"
	"github.com/cronce-io/cronce/lab/conformance/peer"
)

// nodeMutant breaks one rule of the client for Node.js, or of the minimal worker, by replacing text in a file.
// Either a file of vectors, or a scenario of the peer, must notice that. If a MUST follows the scenario's name,
// the scenario must find this MUST broken.
type nodeMutant struct {
	name, file, was, is string
	vectors, scenario   string
}

var nodeMutants = []nodeMutant{
	// What a worker decides.
	{"acks a record that is retrying", "claim", `if (isFinal(record)) return d.message`, `if (isFinal(record) || record.state === "retrying") return d.message`, "claims", ""},
	{"does not wait for the due time", "claim", `if (wait > 0 && (m.slot.range || !tooOld(d, v)))`, `if (false)`, "claims", ""},
	{"disables a job for a past plan whose schedule it cannot compute", "definition", `if (p.to === undefined || !(err instanceof Invalid)) throw`, `throw`, "claims", ""},
	{"ends a slot of a past plan whose schedule it cannot compute", "claim", `if (uncomputed(m, v.entry)) return unhandled(d);`, `if (uncomputed(m, v.entry)) return end(d, v, "cancelled", "definition changed");`, "claims", ""},
	{"runs a slot that was missed", "claim", `if (leftOut(m)) return end`, `if (false) return end`, "claims", ""},
	{"runs a range that does not say how many slots it has", "claim", `m.missed > 0 || m.slot.range;`, `m.missed > 0;`, "claims", ""},
	{"runs a slot that cannot be made", "claim", `if (isRefused(m, v)) return end`, `if (false) return end`, "claims", ""},
	{"runs planned slots of a job that comes after others", "claim", `if (m.revision >= entry.revision) return true;`, `if (m.revision >= entry.revision || entry.job.plan.after?.length) return true;`, "claims", ""},
	{"runs a slot of no plan", "claim", `if (!belongs(m, v.entry)) return end`, `if (false) return end`, "claims", ""},
	{"runs the whole of a split slot", "claim", `if (splits(m, v.entry)) return unhandled(d);`, `if (false) return unhandled(d);`, "claims", ""},
	{"runs the whole of a slot that its producer does not know to be split", "claim", `if (splitOtherwise(m, v.entry)) return { do: "ack" };`, `if (splitOtherwise(m, v.entry)) return claim(d, v, 1);`, "claims", ""},
	{"runs the whole of a split run that an earlier plan's message started", "claim", `planAt(entry, m.due) ?? entry.plans[0]`, `entry.plans.at(-1)`, "claims", ""},
	{"runs the whole of a split run that a message started", "claim", `if (m.event) return`, `if (false) return`, "claims", ""},
	{"runs a slot of a pause", "claim", `if (ofPause(m, v.entry)) return end`, `if (false) return end`, "claims", ""},
	{"runs past the deadline", "claim", `if (pastDeadline(d, v)) return aged`, `if (false) return aged`, "claims", ""},
	{"takes over from a node that lives", "claim", `return v.ownerDead || v.disowned ? takeOver(d, v) : { do: "prove" };`, `return takeOver(d, v);`, "claims", ""},
	{"tries once too often", "claim", `if (record.attempt >= Math.min(record.max_attempts ?? 0, mostClaims)) return end`, `if (record.attempt > (record.max_attempts ?? 0)) return end`, "claims", ""},
	{"ends a slot by a wrong clock", "claim", `return v.implausible ? { do: "later", delay: 30_000 } : end(d, v, state, error);`, `return end(d, v, state, error);`, "claims", ""},
	{"starts a triggered run's chained run in a pause", "claim", `(m.slot.token !== undefined && !m.chained)`, `m.slot.token !== undefined`, "claims", ""},
	{"forgets the error of the clock", "claim", `const certain = (v) => v.now - fromMs(v.error ?? 0);`, `const certain = (v) => v.now;`, "claims", ""},
	{"claims a guarded slot without a place", "claim", `if (guarded(v.entry.job) && v.place?.kind !== "held") return unplaced(d, v);`, ``, "claims", ""},
	{"leaves a dead worker's attempt open", "claim", `return { ...closed(record, revision, now, error), error };`, `return { ...record, error };`, "claims", ""},
	{"retries a permanent error", "claim", `if (result.permanent) return final`, `if (false) return final`, "claims", ""},
	{"retries a cancelled attempt", "claim", `if (result.cancelled) return final`, `if (false) return final`, "claims", ""},
	{"counts an attempt that never started", "claim", `attempt: Math.max(claimed.attempt - 1, 0),`, `attempt: claimed.attempt,`, "claims", ""},
	{"counts a run's age from its last message", "claim", `if (v.record?.published && begunBy(v.record) < from) from = begunBy(v.record);`, ``, "", "old-run"},

	// What it reads.
	{"reads another version", "values", `if (value.v !== 1) throw`, `if (false) throw`, "values", ""},
	{"bounds no list", "bounds", `Array.isArray(v) && v.length <= most,`, `Array.isArray(v),`, "values", ""},
	{"takes settings without a lease for none", "bounds", `standard("lease", 20_000);`, ``, "values", ""},
	{"refuses a watermark without a time", "bounds", `watermark: { time: instant,`, `watermark: { time: (v, name) => instant(v ?? "", name),`, "values", ""},
	{"knows a plan of the past with any member", "bounds", `[job?.plan, ...(Array.isArray(past) ? past.map((p) => p?.plan) : [])]`, `[job?.plan]`, "values", ""},
	{"knows a plan whose stream has any member", "bounds", ` ?? Object.keys(plan?.on ?? {}).find((name) => !planMembers.on.includes(name))`, ``, "values", ""},
	{"refuses a job with a member that it does not know", "definition", `const job = withDefaults(value.job);`, `const job = withDefaults(value.job);
  if (rawMember(rawMember(text, "job"), "x_shade")) throw new Invalid("x_shade");`, "values", ""},
	{"wants the last slot of a range", "claim", `if (m.slot.range && m.missedLast !== undefined)`, `if (m.slot.range)`, "claims", ""},
	{"takes any message ID", "message", `if (id && id !== slotID(slot)) throw`, `if (false) throw`, "messages", ""},
	{"believes that a slot was missed before it could be", "claim", `if (m.missed > 0 && !slot.range && tooEarly)`, `if (false)`, "claims", ""},
	{"believes that a planned slot is refused", "claim", `if (planned) m.refused = "";`, ``, "claims", ""},
	{"takes a run from another timer", "message", `if (kind === "timer.due" &&`, `if (false &&`, "messages", ""},
	{"takes any subject", "message", `if (of !== slot.job) throw`, `if (false) throw`, "messages", ""},
	{"takes any number for a shard", "names", `&& Number(match[3]) >= 2 && Number(match[3]) <= 256 && Number(match[2]) <= Number(match[3])`, ``, "names", ""},
	{"escapes in lower case", "names", `.toString(16).toUpperCase()`, `.toString(16)`, "names", ""},
	{"cancels without a fence", "requests", `if (!fence) throw`, `if (false) throw`, "cancels", ""},

	// Locks, chains, nodes, clocks, producers.
	{"skips a slot for a newer one", "lock", `lock.holders.find((h) => order(h, slot) <= 0);`, `lock.holders[0];`, "locks", ""},
	{"passes those that wait", "lock", `if (free > 0 && !lock.waiting) return`, `if (free > 0) return`, "locks", ""},
	{"cancels a holder that was not on time", "lock", `overlap === "replace" && held.on_time &&`, `overlap === "replace" &&`, "locks", ""},
	{"cancels a holder that is the newest", "lock", `held.on_time && isBefore(held.at, lock.newest)) return`, `held.on_time && lock.newest) return`, "locks", ""},
	{"cancels a newer holder", "lock", `h.on_time && order(h, slot) < 0)`, `h.on_time)`, "locks", ""},
	{"forgets the newest", "lock", `{ ...lock, newest: slot.at } : lock;`, `lock : lock;`, "locks", ""},
	{"keeps the node of an earlier stay", "lock", `? { ...h, node: slot.node, since: slot.since } : h`, `? h : h`, "locks", ""},
	{"takes out the slot of another node", "lock", `h.id !== id || (h.node && h.node !== node)`, `h.id !== id`, "locks", ""},
	{"stands behind the line", "lock", `line: Math.min(lock.line ?? 0, sequence)`, `line: lock.line`, "locks", ""},
	{"calls a slot that was displaced", "lock", `displaced(lock, e, overlap) || waitedTooLong(record, v)`, `waitedTooLong(record, v)`, "locks", ""},
	{"calls a slot that is too old", "lock", `displaced(lock, e, overlap) || waitedTooLong(record, v)`, `displaced(lock, e, overlap)`, "locks", ""},
	{"calls a slot as one that it works on itself", "message", `offer: revision + 2 };`, `offer: revision + 1 };`, "calls", ""},
	{"calls the whole of a split slot", "message", `if (!record.shards) return [m];`, `return [m];`, "calls", ""},
	{"publishes what may come in thousands in the queue's own lane", "message", `m.slot.token !== undefined || m.caughtUp ||`, `m.caughtUp ||`, "messages", ""},
	{"publishes a slot that is offered again in the bulk lane", "message", `!m.offer && !m.chained &&`, `!m.chained &&`, "messages", ""},
	{"keeps the old record of a slot that stands again", "claim", `v.record?.state === "waiting" && !d.message.offer`, `v.record?.state === "waiting"`, "claims", ""},
	{"stands without a deadline", "claim", `...(by !== undefined && { start_by: formatInstant(by) }), ...(isOnTime`, `...(isOnTime`, "claims", ""},
	{"starts a slot that has stood in the line past its deadline", "claim", `if (startsTooLate(record, v)) return aged(d, v, "expired", "not started within its deadline");
  return v.handles ? claim(d, v, record.attempt + 1) : unhandled(d);
}

function retry`, `return v.handles ? claim(d, v, record.attempt + 1) : unhandled(d);
}

function retry`, "claims", ""},
	{"follows before all have succeeded", "follow", `if (before.length < after.length || before.some`, `if (before.some`, "chains", ""},
	{"fences too early", "node", `if (still < limit) return`, `if (still < limit / 2) return`, "fences", ""},
	{"believes the newest clock", "clock", `if (!best || next.error <= this.error(next.at) ||`, `if (true ||`, "clocks", ""},

	{"publishes no slot of the old plan at the edit", "due", `(plan.to !== undefined && instant > plan.to)`, `(plan.to !== undefined && instant >= plan.to)`, "producers", ""},

	// What shows only in a running client.
	{"acks before the record", "worker", `    const wrote = await this.completion(key, record, outcome, fence, life);
    if (wrote.lost)`, `    if (isFinal(outcome)) d.ackNow();
    const wrote = await this.completion(key, record, outcome, fence, life);
    if (wrote.lost)`, "", "ack-after-record C-10"},
	{"starts on a read", "worker", `const wrote = step.stored ? { won: revision } : await`, `const wrote = step.do === "start" ? (this.put(key, step.record, revision).catch(() => {}), { won: revision + 1 }) : await`, "", "claim-lost C-5"},
	{"starts by a claim that is not answered", "store", `const answer = await this.publish(` + "`$KV.${this.namespace}_${bucket}.${key}`" + `, bytes, head);`, `const answer = await Promise.race([this.publish(` + "`$KV.${this.namespace}_${bucket}.${key}`" + `, bytes, head), pause(1000).then(() => ({ seq: revision + 1 }))]);`, "", "claim-unanswered"},
	{"settles a write by a read", "store", `const answer = await this.publish(` + "`$KV.${this.namespace}_${bucket}.${key}`" + `, bytes, head);`, `const answer = await Promise.race([this.publish(` + "`$KV.${this.namespace}_${bucket}.${key}`" + `, bytes, head), pause(1000).then(() => ({ unknown: true }))]);
      if (answer.unknown) { const f = await this.read(bucket, key).catch(() => ({})); if (f.nonce === nonce) return { won: f.revision }; }`, "", "claim-unanswered"},
	{"writes anew after no answer", "store", `const answer = await this.publish(` + "`$KV.${this.namespace}_${bucket}.${key}`" + `, bytes, head);`, `const answer = await this.publish(` + "`$KV.${this.namespace}_${bucket}.${key}`" + `, JSON.stringify({ ...value, nonce: nonce + "/" + n }), head);`, "", "completion-unanswered"},
	{"answers after a lost claim", "worker", `return wrote.won ? this.ended(outcome, wrote.won, d, { record, entry }, place) : undefined;`, `return wrote.won ? this.ended(outcome, wrote.won, d, { record, entry }, place) : { ack: true };`, "", "late-completion"},
	{"marks a message after a lost claim", "worker", `      clearInterval(marks);
`, ``, "", "late-completion C-11"},
	{"answers a message without trust", "worker", `if (answer === undefined || !this.node.trusted()) return;`, `if (answer === undefined) return;`, "", "ask-lapsed C-11"},
	{"takes the death of one owner for another's", "worker", `ownerDead: record && ownerDead === record.node`, `ownerDead: record && ownerDead !== undefined`, "", "owner-moves K-2"},
	{"takes a denial of one claim for another's", "worker", `disowned: record && disowned === revision`, `disowned: record && disowned !== undefined`, "", "owner-moves K-2"},
	{"takes a holder without a record for ended", "locks", `return value && isFinal(value) ? { ...this.next`, `return !value || isFinal(value) ? { ...this.next`, "", "lock-skips X-2"},
	{"ends a message that a newer program may read", "worker", `err instanceof Contradiction || toMs(`, `true || toMs(`, "", "another-spelling C-9"},
	{"keeps its place after a lost claim", "worker", `if (entered !== revision) place = undefined;`, ``, "", "lock-moves X-1"},
	{"marks a message without trust", "worker", `if (this.node.trusted()) m.working(); }`, `m.working(); }`, "", "ask-lapsed C-11"},
	{"trusts itself until a timer says otherwise", "node", `if (!this.signal.aborted && boot() + behind >= this.trustedUntil && this.revision > 0) this.end("its lease lapsed");`, `if (this.timer?._destroyed && !this.signal.aborted && boot() + behind >= this.trustedUntil && this.revision > 0) this.end("its lease lapsed");`, "", "frozen"},
	{"trusts itself past its lease", "node", `if (!this.signal.aborted && boot() + behind >= this.trustedUntil && this.revision > 0) this.end("its lease lapsed");`, ``, "", "lapsed L-3"},
	{"revives a lapsed lease", "fleet", `const common = {`, `if (run.last) Object.assign(node, { name: run.last.name, revision: run.last.revision });
    run.last = node;
    const common = {`, "", "lapsed L-4"},
	{"goes on when it was fenced", "node", `if (wrote.lost) return this.end("fenced");`, `if (wrote.lost) { this.revision = (await this.store.read("nodes", this.name)).revision; return; }`, "", "fenced"},
	{"takes silence for a denial", "requests", `if (!answer || answer.error || typeof answer.holds !== "boolean") return false;`, `if (!answer || answer.error || typeof answer.holds !== "boolean") return true;`, "", "owner-slow"},
	{"takes an old slot from an owner that holds it", "requests", `(old && Boolean(answer.ended))`, `old`, "", "owner-holds K-2"},
	{"denies a claim that runs", "requests", `answer = { v: 1, holds: flight !== undefined,`, `answer = { v: 1, holds: false,`, "", "ask"},
	{"cancels any attempt", "requests", `h.id === id && String(h.fence) === fence && h.node`, `h.id === id && h.node`, "", "cancel"},
	{"answers a second message", "worker", `if (flight?.node === this.node.name) return; // already in flight: no answer`, `if (flight?.node === this.node.name) return m.ack();`, "", "twice"},
	{"acks before what follows is stored", "follow", `await stored(store, ` + "`${store.namespace}.slot.${m.queue}.${m.job}`", `void stored(store, ` + "`${store.namespace}.slot.${m.queue}.${m.job}`", "", "follows"},
	{"acks an outcome that it finds before what follows is stored", "worker", `if (record) await follow(this, record, revision, d.message, v);`, ``, "", "follows-again F-1"},
	{"acks before the alert is stored", "follow", `alert))) await stored(`, `alert))) void stored(`, "", "alert F-1"},
	{"takes the word of a server that lags", "follow", `if (seen) return found;`, `return found;`, "", "follows-two F-2"},
	{"takes a write in progress for a removed record", "store", `found.revision === 0 && revision > 0 && code === 10071`, `found.revision === 0 && revision > 0`, "", "completion-conflicts W-4"},
	{"says that it ends a handler that has returned", "requests", `if (flight && !flight.returned &&`, `if (flight &&`, "", "cancel O-2"},
	{"says of a handler that runs that it outlived its context", "requests", `...(flight?.controller.signal.aborted && !flight.returned && { ended: true })`, `ended: true`, "", "ask O-2"},
	{"leaves a newer stay", "lock", `h.id !== id || (h.node && h.node !== node)`, `h.id !== id`, "", "guarded X-7"},
	{"acts on a lock whose write it lost", "locks", `if (wrote.lost) {
        if (++lost > 1) await pause(backOff(lost) * Math.random(), this.node.signal);
        continue;
      }`, ``, "", "lock-lost X-7"},
	{"admits by a lock that it remembers", "locks", `if (remembered) continue;`, ``, "", "lock-moves X-1"},
	{"leaves an older slot its place", "worker", `if (displaces && !(await`, `if (false && !(await`, "", "lock-replaces X-2"},
	{"asks once for the end of the slot that it replaces", "locks", `if (record && !isFinal(record) && !record.shards) await this.end(record, revision, by);`, `if (record && !isFinal(record) && !record.shards) await this.end(record, revision, by);
      return true;`, "", "lock-replaces X-5"},
	{"writes the outcome of a slot that is replaced", "requests", `if (record.state === "running") {
      const request`, `if (false) {
      const request`, "", "lock-replaces"},
	{"writes the outcome of a slot whose owner does not answer", "requests", `return void (await this.ask(record.node, request, 2000).catch(() => {}));`, `if (await this.ask(record.node, request, 2000).catch(() => {})) return;`, "", "lock-replaces K-2"},
	{"replaces a slot that has ended", "locks", `if (record && !isFinal(record) && !record.shards) await`, `if (record) await`, "", "lock-replaces-late K-1"},
	{"has a backfill replace an older slot", "claim", `m.caughtUp || m.backfill || m.offer`, `m.caughtUp || m.offer`, "", "lock-not-on-time X-2"},
	{"has a triggered run replace an older slot", "claim", `m.offer || m.slot.token !== undefined);`, `m.offer);`, "", "lock-not-on-time X-2"},
	{"has a slot that is retried replace an older one", "claim", `if (record) return record.state === "waiting" && Boolean(record.on_time);`, `if (record?.state === "waiting") return Boolean(record.on_time);`, "", "lock-not-on-time X-2"},
	{"keeps the old stay of a slot with a new start", "lock", `if (held.node === slot.node ? fresh || author === slot.node : fresh && !held.node) return`, `if (true) return`, "", "lock-renewed X-2"},
	{"keeps a result that is too large", "bounds", `if (size > 65_536)`, `if (false)`, "", "unknown-members V-4"},
	{"reads a text for a number", "bounds", `check(Number.isInteger(v) && v >= least && v <= most, name`, `check(!(v < least) && !(v > most), name`, "values", ""},
	{"reads any word for true", "bounds", `typeof v === "boolean",`, `true,`, "values", ""},
	{"reads a payload that is not base64", "bounds", `/^[A-Za-z0-9+/]*={0,2}$/.test(base64) &&`, ``, "values", ""},
	{"takes an unknown overlap for another", "definition", `"allow"].includes(job.overlap)`, `"allow"].includes(job.overlap) || true`, "values", ""},
	{"takes an unknown catch-up policy for none", "definition", `"none"].includes(job.catch_up)`, `"none"].includes(job.catch_up) || true`, "values", ""},
	{"bounds no attempts of a job", "definition", `["attempts", 1, 1000]`, `["attempts", 1, Infinity]`, "values", ""},
	{"takes an attempt number 0 of a job for none", "definition", `&& v !== "" && v !== 0 &&`, `&& v !== "" &&`, "definitions", ""},
	{"takes an alert without a target", "definition", `check(!job[name] || (either`, `check(true || (either`, "values", ""},
	{"takes the year 1 for the time since when", "values", `return ns === never ? undefined : ns;`, `return ns;`, "messages", ""},
	{"has slots of a job that comes after itself", "schedule", `after.includes(job) ||`, ``, "values", ""},
	{"excludes by the words for schedules", "schedule", `(job === undefined ? text : macros[text] ?? text)`, `(macros[text] ?? text)`, "schedules", ""},
	{"has the working day nearest the 1st in another month", "schedule", `n === 1 ? 3 : n - 1`, `n - 1`, "schedules", ""},
	{"has the working day nearest the last in another month", "schedule", `n === length ? n - 2 : n + 1`, `n + 1`, "schedules", ""},
	{"has a working day nearest a day that the month lacks", "schedule", `if (n > length) return false;`, ``, "schedules", ""},
	{"has the last Friday a week early", "schedule", `day + 7 > length`, `day + 7 >= length`, "schedules", ""},
	{"has a sixth Friday", "schedule", `if (nth < 1 || nth > 5)`, `if (nth < 1)`, "schedules", ""},
	{"finds no first of February from the end", "schedule", `if (doms.has(dom) || doms.relative.some((is) => is(dom, length, 3)))`, `if (doms.has(dom))`, "schedules", ""},
	{"counts intervals from 1970", "schedule", `const begin = from ?? 0;`, `const begin = 0;`, "schedules", ""},
	{"counts days in UTC", "schedule", `const begin = from + zone.offset(from);`, `const begin = from;`, "schedules", ""},
	{"has intervals of eleven years", "schedule", `if (n < 1 || n > 3660)`, `if (n < 1)`, "schedules", ""},
	{"steps over a whole field", "schedule", `|| step > top - field.low + 1`, ``, "schedules", ""},
	{"has no slots before 1970", "schedule", `[0, Date.UTC(1870, 0, 1) / 1000, first].every`, `[0].every`, "schedules", ""},
	{"has clocks change at full quarters of an hour", "zone", `Math.floor(at / 60)`, `Math.floor(at / 900)`, "schedules", ""},
	{"ends before the last day of the year 9999", "schedule", `day, end + day);`, `day, end);`, "schedules", ""},
	{"reads white space in a header", "message", `header(name).replace(/^\p{White_Space}+|\p{White_Space}+$/gu, "")`, `header(name)`, "messages", ""},
	{"refuses a record whose queue is empty", "bounds", `if (r.queue) checkName`, `checkName`, "values", ""},
	{"publishes no range of missed slots", "producer", `messages.slice(first), ranges])`, `messages.slice(first)])`, "", "away P-2"},
	{"forgets the slots of a removed job", "producer", `for (const entry of this.ended) jobs.set(`, `for (const entry of []) jobs.set(`, "", "removed P-14"},
	{"forgets the slots of a paused job", "due", `if (pause && pause.to === undefined) continue;`, `if (entry.paused) continue;`, "", "removed P-14"},
	{"forgets the slots of a job whose definition is broken", "registry", `before && !this.entries.has(key) ?`, `before && text === undefined ?`, "", "removed P-14"},
	{"publishes what it decided before it lost its connection", "producer", `if (type !== "disconnect") continue;`, `if (type) continue;`, "", "cut-off P-15"},
	{"moves the watermark with older zone data", "producer", `if (this.outdated()) return;`, ``, "", "newer-zone O-4"},
	{"moves the watermark back", "producer", `if (at > time || found.value.registry_revision > revision ||`, `if (false ||`, "", "watermark-ahead"},
	{"moves the watermark back to an older registry", "producer", `at > time || found.value.registry_revision > revision ||`, `at > time ||`, "", "watermark-ahead P-5"},
	{"moves the watermark past an unknown definition", "producer", `if (!blind) this.advancing`, `this.advancing`, "", "definition-2"},
	{"writes over a newer program's watermark", "producer", `if (found.unreadable instanceof UnknownVersion) return;`, ``, "", "watermark-2"},
	{"moves the watermark before the stream answers", "producer", `await Promise.all(some.map(`, `void Promise.all(some.map(`, "", "publication-unanswered"},
	{"moves the watermark past the slots of a job that waits for acknowledgements", "producer", `this.advance(this.least(), signal)`, `this.advance(this.position, signal)`, "", "publication-unanswered P-3"},
	{"takes any answer to a publication for an acknowledgement", "producer", `body, head)).seq;`, `body, head)).code || true;`, "", "publication-unanswered P-3"},
	{"triggers a run under no message ID", "orders", `head.set(name, text);
  let open`, `if (name !== "Nats-Msg-Id") head.set(name, text);
  let open`, "", "trigger M-4"},
	{"triggers a run at once that is for later", "orders", `if (later) await setTimer`, `if (false) await setTimer`, "", "trigger-later M-6"},
	{"sets a timer by the name of the token", "orders", `slotKey(slot).slice(` + "`${slot.job}.t.`.length)", `slot.token`, "", "trigger-later M-6"},
	{"leaves the message ID in a timer", "orders", `const { "Nats-Msg-Id": msgID, ...head } = formatMessage(`, `const { "Nats-Msg-Id": msgID } = formatMessage({ slot, node }), head = formatMessage(`, "", "trigger-later M-6"},
	{"sets a timer whatever stands there", "orders", `"Nats-Expected-Last-Subject-Sequence": "0", `, ``, "", "trigger-later W-1"},
	{"sets each copy of a timer anew", "orders", `const answer = await store.publish(subject, body, head);`, `if (exists.length) head.set("Cronce-Nonce", randomUUID()); const answer = await store.publish(subject, body, head);`, "", "trigger-later W-3"},
	{"triggers a run with any payload", "orders", `if (Buffer.byteLength(body ?? "") > mostPayload) throw`, `if (false) throw`, "", "trigger-large M-5"},
	{"refuses the largest payload", "orders", `> mostPayload) throw`, `>= mostPayload) throw`, "", "trigger-large M-5"},
	{"triggers a run that is there", "orders", `if (key !== undefined && await triggered(`, `if (false && await triggered(`, "", "trigger-later M-7"},
	{"takes any record for an outcome", "orders", `if (value && isFinal(value))`, `if (value)`, "", "trigger W-1"},
	{"trusts a late T", "producer", `    const { messages, ranges } = due(`, `    this.hears ??= this.store.nc.subscribe(` + "`${this.store.namespace}.producers`" + `, { callback: (_, m) => {
      const { time } = m.json(), at = time && parseInstant(time);
      if (at && this.position && at > this.position.time) this.position = { ...this.position, time: at };
    } });
    const { messages, ranges } = due(`, "", "future-t P-9"},
	{"publishes with a wrong clock", "producer", `this.node.trusted() && !this.node.implausible;`, `this.node.trusted();`, "", "wrong-clock"},
	{"loses unknown members", "worker", `const wrote = step.stored ? { won: revision } : await`, `delete step.record.x_shade; const wrote = step.stored ? { won: revision } : await`, "", "unknown-members"},
	{"takes a busy server for a refusal", "store", `const unanswered = new Set([10004, 10008, 10009, 10075, 10118, 10158, 10163, 10194]);`, `const unanswered = new Set([10008]);`, "", "claim-busy"},
	{"takes any conflict for a loss", "store", `if (found.revision > revision) return { lost: true };`, `return { lost: true };`, "", "claim-conflicts"},
	{"starts by a claim that was refused", "store", `return open.size === 0 ? { refused: answer.description } : undefined;`, `return open.size === 0 ? { won: revision + 1 } : undefined;`, "", "claim-refused"},
	{"takes a refused copy for the end of a write", "store", `return open.size === 0 ? { refused`, `return true ? { refused`, "", "completion-refused-later W-3"},
	{"claims again after a completion that was refused", "worker", `        this.log(err.message);
        await pause(500, life);`, `        throw err;`, "", "completion-refused"},
	{"takes a record of another slot", "store", `if (named !== key) throw`, `if (false) throw`, "", "foreign-record"},
	{"decides by a definition that is older than the message", "registry", `if (watched && watched.revision >= revision) return watched;`, `if (watched) return watched;`, "", "edited-unseen"},
	{"compares with its own clock", "clock", `get offset() { return this.best?.offset ?? 0; }`, `get offset() { return 0; }`, "", "fast-clock"},
	{"retries at once", "worker", `backoff = Math.min(`, `backoff = 0 * Math.min(`, "", "fails"},
	{"does not double the backoff", "worker", ` * 2 ** Math.min(record.attempt - 1, 60), parseDuration(job.max_backoff)`, `, parseDuration(job.max_backoff)`, "", "fails C-16"},
	{"bounds no backoff", "worker", `parseDuration(job.max_backoff)) * (0.75`, `Infinity) * (0.75`, "", "fails C-16"},
	{"takes a node for dead that was not fenced", "node", `if (found.value && found.value.state !== "alive") return { dead: true };`, `return { dead: true };`, "", "owner-slow C-14"},
	{"sends heartbeats too seldom", "node", `await pause(this.lease / 10, this.signal);`, `await pause(this.lease / 2, this.signal);`, "", "owner-slow L-1"},
	{"takes the record of another node", "store", `  node: (v) => v.node,
`, ``, "", "node-2 M-2"},
	{"takes the definition of another job", "registry", `if (entry.job.name !== key) throw`, `if (false) throw`, "", "foreign-record M-2"},
	{"reads a marker of the server as a value", "store", `(DEL|PURGE)|Nats-Marker-Reason:)`, `(DEL|PURGE))`, "", "foreign-record M-2"},
	{"takes a job for deleted that it has not seen", "registry", `const found = await this.store.read("jobs", job);`, `const found = watched ? await this.store.read("jobs", job) : {};`, "", "edited-unseen C-2"},
	{"takes the age of a node's record for its silence", "node", `notice({ key, text, revision }) {
    const`, `notice({ key, text, revision, time }) {
    if (typeof time === "bigint") return void this.seen.set(key, { text, revision, since: stopwatch() - Number(fromMs(Date.now()) - time) / 1e6 });
    const`, "", "owner-silent L-5"},
	{"takes a node without a record for dead", "node", `if (still < limit) return`, `if (value && still < limit) return`, "", "owner-silent L-5"},
	{"runs a slot that an older incarnation still runs", "worker", `if (flight) return m.nak(1000);`, ``, "", "older-incarnation C-1"},
	{"calls no slot", "locks", `if (this.next.waiting && (tend || this.next.holders.length < this.places)) await`, `if (this.next.waiting && tend) await`, "", "lock-calls X-8"},
	{"calls slots with a write of its own", "locks", `if (this.next.waiting && (tend || this.next.holders.length < this.places)) await this.callFromLine();`, `if (this.next.waiting && look) await this.callFromLine();
    else if (this.next.waiting && this.next.holders.length < this.places) this.again = true;`, "", "lock-calls X-8"},
	{"calls slots in the order of the stream", "locks", `.filter((e) => e.id !== undefined).sort(order)`, `.filter((e) => e.id !== undefined)`, "", "lock-calls X-8"},
	{"gives a slot that was displaced a place", "locks", `if (isOver(this.next, e, record, this.overlap, v) || this.places`, `if (this.places`, "", "lock-displaced X-8"},
	{"does not look at the lock again", "locks", `await this.ask(job, { stood: sequence, id: slot.id, revision });`, ``, "", "lock-look X-4"},
	{"looks at the lock before its entry is in the line", "worker", `await this.locks.stand(job, slot, revision)`, `await this.locks.ask(job, { stood: 1 }).then(() => this.locks.lines.put(slot, job, revision, this.node.signal))`, "", "lock-look X-4"},
	{"stands before its record waits", "worker", `const wrote = step.stored ?`, `if (step.do === "stand") await this.locks.lines.put(entrant(d, v).slot, slot.job, 1, this.node.signal);
      const wrote = step.stored ?`, "", "lock-stands X-4"},
	{"acks before its entry is answered", "worker", `await this.locks.stand(job, slot, revision).finally(() => this.standing--);`, `void this.locks.stand(job, slot, revision).finally(() => this.standing--);`, "", "lock-stands X-4"},
	{"looks at the line once", "locks", `if (!step.again) return answer;`, `return answer;`, "", "lock-line-again X-9"},
	{"acks before it has left its lock", "worker", `if (entered || mayHold(d, v)) await this.locks.leave`, `if (entered || mayHold(d, v)) void this.locks.leave`, "", "lock-leaves X-6"},
	{"leaves a holder that has ended its place", "worker", `if (mayHold(d, v)) await this.locks.leave(slotID(slot), true);`, ``, "", "lock-stands X-7"},
	{"takes out a holder by a record that it read before the lock", "locks", `return value && isFinal(value) ? { ...this.next`, `this.locks.ended ??= new Set();
    if (value && isFinal(value)) this.locks.ended.add(id);
    return this.locks.ended.has(id) ? { ...this.next`, "", "lock-lost X-7"},
	{"takes nothing from the bulk lane", "worker", `[slots, bulkLane(queue)], `, ``, "", "bulk B-2"},
	{"leaves the lock when an attempt is to be repeated", "worker", `    if (!isFinal(record)) return { nak: retryWait(record, this.node.now()) };`, `    if (!isFinal(record)) {
      await this.locks.leave(record.id);
      return { nak: retryWait(record, this.node.now()) };
    }`, "", "lock-places X-1"},
	{"gives a job more places than it has", "lock", `const free = Math.max(1, places) - lock.holders.length,`, `const free = Math.max(1, places) + 1 - lock.holders.length,`, "", "lock-places X-1"},
	{"gives a job one place", "lock", `places: Math.max(1, job.concurrency ?? 1)`, `places: 1`, "", "lock-places X-2"},
	{"sends another heartbeat after one that was not answered", "node", `tzdata: process.versions.tz, version: "node-client",
    };`, `tzdata: process.versions.tz, version: "node-client",
    };
    if (this.revision > 0) signal = AbortSignal.any([signal, AbortSignal.timeout(900)]);`, "", "heartbeat-unanswered L-1"},
	{"takes part before its heartbeat is answered", "fleet", `await node.start();`, `void node.start();
    node.trusted = () => !node.signal.aborted;
    node.clock.observe(Date.now(), Date.now(), Date.now());`, "", "unborn L-3"},
	{"takes its own clock for the broker's", "node", `while (!this.signal.aborted && !this.estimated()) await pause(20, this.signal);`, `this.clock.observe(this.own(), this.own(), this.own());`, "", "unborn L-8"},
	{"declares a node dead that has stopped", "node", `if (value && value.state !== "alive") return { dead: true };`, `if (value?.state === "fenced") return { dead: true };`, "", "owner-silent L-6"},
	{"loses unknown members of a dead node", "node", `value: { ...(value ?? missing), state`, `value: { ...missing, ...(value && { started: value.started, lease: value.lease }), state`, "", "owner-silent V-3"},
	{"reads what any replica has", "store", "return this.nc.request(`$JS.API.STREAM.MSG.GET.${stream}`, JSON.stringify({ last_by_subj: subject }), { timeout: 2 * attempt }).catch((err) => this.anyReplica(stream, subject, err));", "this.direct = true; return this.anyReplica(stream, subject, new PermissionViolationError(\"\", \"publish\", \"\"));", "", "claim-lost W-4"},
	{"believes a clock that is slow", "node", `Math.abs(this.offset) > 3_600_000`, `-this.offset > 3_600_000`, "", "wrong-clock-slow P-7"},
	{"leaves the watermark to a worker", "node", `if (value?.producer && value.state`, `if (value && value.state`, "", "newer-zone O-4"},
	{"looks once for newer zone data", "producer", `if (this.outdated()) return;`, `if (!this.current && this.outdated()) return;
    this.current = true;`, "", "newer-zone O-4"},
	{"marks a second message", "worker", `return; // already in flight: no answer`, `return void setTimeout(() => m.working(), 500);`, "", "twice C-1"},
	{"denies its claim by another revision", "requests", `holds: flight !== undefined,`, `holds: flight !== undefined && (!flight.fence || String(flight.fence) === claim),`, "", "ask O-2"},
	{"takes over by an answer of another version", "requests", `decode(m.string())).catch(`, `m.json()).catch(`, "", "owner-slow V-2"},
	{"cancels by a request of another version", "requests", `replaced } = decode(text)`, `replaced } = JSON.parse(text)`, "", "cancel V-2"},
	{"starts by a claim that was not answered before its trust ended", "worker", `if (wrote.unknown) return undefined;`, `if (wrote.unknown) return void (await this.handle(d, flight, step.record, 0, v.entry));`, "", "lapsed W-5"},
	{"trusts itself for all of its lease", "node", `this.trustedUntil = sent + 0.75 * this.lease;`, `this.trustedUntil = sent + 0.97 * this.lease;`, "", "lapsed L-3"},
	{"gives a slot back at once that waits for its next attempt", "worker", `return m.nak(Math.max(1, Math.ceil(answer.nak)));`, `return m.nak();`, "", "fails C-9"},
	{"runs a shard as if it were a slot", "claim", `if (d.message.slot.shards) return unhandled(d); // this program leaves split slots to others`, ``, "", "no-handler C-13"},
	{"counts its trust from the answer to a heartbeat", "node", `this.trustedUntil = sent + 0.75 * this.lease;`, `this.trustedUntil = boot() + 0.75 * this.lease;`, "", "lapsed L-3"},
	{"says that it has stopped while an outcome is not answered", "fleet", `await node.stop(worker.running > 0)`, `await node.stop(false)`, "", "stop L-7"},
	{"does not say that it has stopped", "fleet", `await node.stop(worker.running > 0)`, `await node.stop(true)`, "", "stop L-9"},
	{"takes a read that is not answered for a loss", "store", `if (!found) return undefined;`, `if (!found) return { lost: true };`, "", "completion-conflicts W-4"},
	{"sends a claim again whose record is gone", "store", `if (found.revision === 0 && revision > 0 && code === 10071) return { lost: true };`, ``, "", "claim-purged W-4"},
	{"reads a payload that is too large", "bounds", `"base64") <= 262_144`, `"base64") <= 350_000`, "", "version-2 V-4"},
	{"makes the consumer of a queue for three deliveries", "worker", `max_deliver: -1`, `max_deliver: 3`, "", "healthy B-4"},
	{"ends a shard as if it were a slot", "claim", `if (d.message.slot.shards) return unhandled(d);
  let record`, `let record`, "", "no-handler C-13"},
	{"loses unknown members of the lock", "locks", `const value = tidy(next);`, `const { v, job, holders, waiting, line, newest } = next, value = tidy({ v, job, holders, waiting, line, newest });`, "", "guarded V-3"},
	{"leaves an older slot that no node owns", "locks", `if (record && !isFinal(record) && !record.shards) await`, `if (record?.state === "running") await`, "", "lock-replaces-retrying X-2"},
	{"publishes by a clock that may be fast", "node", `fromMs(this.own() + this.clock.offset - this.clock.error(this.own()))`, `this.now()`, "", "fast-clock P-1"},
	{"starts by a clock that may be fast", "worker", `error: this.node.clock.error(this.node.own()),`, `error: 0,`, "", "fast-clock L-8"},
	{"loses unknown members of the watermark", "producer", `{ ...found.value, v: 1,`, `{ v: 1,`, "", "away V-3"},
	{"publishes the range of missed slots before the others", "producer", `messages.slice(first), ranges])`, `ranges, messages.slice(first)])`, "", "away P-2"},
	{"moves the watermark to a registry that it has not seen", "producer", `{ known } = this.registry,`, "known = { ...this.registry.known, revision: (await this.store.nc.request(`$JS.API.STREAM.INFO.KV_${this.store.namespace}_jobs`)).json().state.last_seq },", "", "registry-unseen P-4"},
	{"moves the watermark before it has seen the registry", "watch", `let isReady = state.messages === 0;
    if (isReady) ready`, `let isReady = true;
    if (isReady) ready`, "", "registry-unseen P-4"},
	{"moves the watermark to a registry of which more is pending", "watch", `if (!isReady && pending === 0)`, `if (!isReady)`, "", "registry-unseen P-4"},
	{"moves the watermark past a definition that was lost with its connection", "watch", `await jetstream(nc).consumers.get(stream, { deliver_policy: DeliverPolicy.LastPerSubject });`, `await jetstreamManager(nc).then((m) => m.consumers.add(stream, { filter_subject: ">", deliver_policy: DeliverPolicy.LastPerSubject, ack_policy: "none" })).then((c) => jetstream(nc).consumers.get(stream, c.name));`, "", "registry-unseen P-4"},
	{"moves the watermark past a plan that it does not know", "bounds", `if (unknown && typeof`, `if (false && typeof`, "", "definition-2 O-3"},
	{"claims a slot that was missed", "claim", `const final = new Set(["succeeded", "failed", "skipped", "missed",`, `const final = new Set(["succeeded", "failed", "skipped",`, "", "has-outcome"},
	{"answers a request without a version", "requests", `let answer = { v: 1, ending: false };`, `let answer = { ending: false };`, "", "cancel O-2"},
	{"serves no timers", "worker", `, [timers, queue]]`, `]`, "", "timer"},

	{"takes a node without a lease for unreadable", "bounds", `lease: span(0, 24 * hour), producer`, `lease: (v, name) => span(0, 24 * hour)(v ?? 0, name), producer`, "", "absent-members V-5"},
	{"retries a run of which it does not know how old it is", "claim", `if (!record.published) return fromSeconds(-62_135_596_800);`, `if (!record.published) return fromSeconds(4_000_000_000);`, "", "absent-members V-5"},
	{"waits for an attempt that has no time", "claim", `if (!record.retry_at) return 0;`, ``, "", "absent-members V-5"},
	{"takes max_attempts for three that are absent", "claim", `Math.min(record.max_attempts ?? 0, mostClaims)`, `(record.max_attempts ?? 3)`, "", "absent-members V-5"},

	{"claims at a revision that it reads again", "worker", `{ won: revision } : await this.put(key, step.record, revision);`, `{ won: revision } : await this.put(key, step.record, step.do === "start" ? (await this.store.read("ledger", key)).revision : revision);`, "", "read-again K-2"},
	{"completes at a revision that it reads again", "worker", `const wrote = await this.put(key, outcome, at, {`, `if ((await this.store.read("ledger", key)).value?.node !== this.node.name) return { lost: true };
        at = (await this.store.read("ledger", key)).revision;
        const wrote = await this.put(key, outcome, at, {`, "", "read-again C-6"},
	{"declares a node dead at a revision that it reads again", "node", `const wrote = await this.store.write("nodes", name, step.value, revision,`, `if ((await this.store.read("nodes", name)).revision !== revision) return { wait: this.lease };
    const wrote = await this.store.write("nodes", name, step.value, (await this.store.read("nodes", name)).revision,`, "", "read-again L-5"},
	{"writes a lock at a revision that it reads again", "locks", `const wrote = await this.write(key, step.next, revision);`, `const wrote = await this.write(key, step.next, (await this.store.read("state", key)).revision);`, "", "read-again X-1"},
	{"moves the watermark at a revision that it reads again", "producer", `value, found.revision, {`, `value, (await this.store.readAny("state", "watermark")).revision, {`, "", "read-again P-5"},

	// What the minimal worker leaves to others.
	{"runs a slot of a guarded job", "minimal", `definition.overlap === "allow" && `, ``, "", "not-supported X-1"},
	{"runs a slot of a job with places", "minimal", `known.includes(k))`, `known.concat("concurrency").includes(k))`, "", "not-supported X-1"},
	{"runs a slot that others come after", "minimal", `return !followed && `, `return `, "", "not-supported F-1"},
	{"runs a slot with a target for alerts", "minimal", `known.includes(k))`, `known.concat("on_failure").includes(k))`, "", "not-supported F-1"},
	{"counts its trust from the answer to a heartbeat, for minimal", "minimal", `this.trustedUntil = sent + 0.75 * this.lease;`, `this.trustedUntil = boot() + 0.75 * this.lease;`, "", "lapsed L-3"},
	{"claims again after a completion that was refused, for minimal", "minimal", `.then((won) => ({ won }), (err) => this.log(err.message));`, `.then((won) => ({ won }));`, "", "completion-refused C-15"},
	{"goes on with a claim without trust", "minimal", `const fence = await this.store.write("ledger", slot.key, claim, revision, () => !this.trusted());`, `const fence = await this.store.write("ledger", slot.key, claim, revision, () => false);`, "", "lapsed L-3"},
	{"takes a node for dead whose heartbeat came first", "minimal", `return (await this.store.write("nodes", name, fenced, revision, () => !this.trusted())) !== undefined;`, `await this.store.write("nodes", name, fenced, revision, () => !this.trusted());
    return true;`, "", "owner-silent K-2"},
	{"runs a slot that its older incarnation still runs", "minimal", `if (inflight) return inflight.node === this.name ? undefined : m.nak(1000);`, `if (inflight?.node === this.name) return;`, "", "older-incarnation C-1"},
	{"runs a slot of a plan that it does not know", "minimal", `=== "allow" && !foreign &&`, `=== "allow" &&`, "", "job-2 V-6"},
	{"runs the whole of a slot that its job splits", "minimal", `"timezone", "spread",`, `"timezone", "shards", "spread",`, "", "no-handler C-12"},
}

// If a mutant passed the kit, another client could break the same rule unseen.
func TestMutantsOfTheJavaScriptClientFailTheVectors(t *testing.T) {
	testNodeMutants(t, func(m nodeMutant) bool { return m.vectors != "" }, func(m nodeMutant, t *testing.T, node, dir string) {
		m.failsVectors(t, node+dir+"/vectors.js")
	})
}

func TestMutantsOfTheJavaScriptClientFailThePeer(t *testing.T) {
	testNodeMutants(t, func(m nodeMutant) bool { return m.vectors == "" && m.file != "minimal" }, func(m nodeMutant, t *testing.T, node, dir string) {
		m.failsPeer(t, node+dir+"/peer.js")
	})
}

func TestMutantsOfTheMinimalWorkerFailThePeer(t *testing.T) {
	testNodeMutants(t, func(m nodeMutant) bool { return m.file == "minimal" }, func(m nodeMutant, t *testing.T, node, dir string) {
		m.failsPeer(t, node+dir+"/peer.js minimal")
	})
}

// testNodeMutants calls fails for each chosen mutant, with the command of Node.js and the folder of the broken
// client.
func testNodeMutants(t *testing.T, chosen func(nodeMutant) bool, fails func(m nodeMutant, t *testing.T, node, dir string)) {
	t.Helper()
	t.Parallel()
	node := "'" + needNode(t) + "' "
	limiter := make(chan struct{}, 4)
	for _, m := range nodeMutants {
		if !chosen(m) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			limiter <- struct{}{}
			defer func() { <-limiter }()
			fails(m, t, node, m.make(t))
		})
	}
}

// make copies the client and breaks its rule.
func (m nodeMutant) make(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	modules, err := filepath.Abs(nodeClient + "/node_modules")
	if err == nil {
		err = os.Symlink(modules, dir+"/node_modules")
	}
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(nodeClient, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() == "node_modules" {
			return skipDir(d, err)
		}
		name, _ := filepath.Rel(nodeClient, path)
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(dir, name), 0o700)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if name == "lib/"+m.file+".js" || name == m.file+".js" {
			if n := strings.Count(string(text), m.was); n != 1 {
				t.Fatalf("%s contains %d times %q, want once: mend the mutant", name, n, m.was)
			}
			text = []byte(strings.Replace(string(text), m.was, m.is, 1))
		}
		return os.WriteFile(filepath.Join(dir, name), text, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func skipDir(d fs.DirEntry, err error) error {
	if err == nil && d.IsDir() {
		return filepath.SkipDir
	}
	return err
}

func (m nodeMutant) failsVectors(t *testing.T, command string) {
	t.Helper()
	cases, err := conformance.Cases(m.vectors)
	if err != nil {
		t.Fatal(err)
	}
	wrong := 0
	err = conformance.Ask(t.Context(), conformance.Command{Line: command}, cases, natstest.Patience, func(v conformance.Verdict) {
		if v.Wrong != "" {
			wrong++
		}
	})
	if err == nil && wrong == 0 {
		t.Errorf("no case of %s noticed the mutant", m.vectors)
	}
}

// failsPeer runs the scenario up to three times: whether a rule is broken in view of the peer may depend on timing, as
// with a client that moves the watermark every second or every five.
func (m nodeMutant) failsPeer(t *testing.T, command string) {
	t.Helper()
	scenario, must, _ := strings.Cut(m.scenario, " ")
	for range 3 {
		broken := brokenIn(t, command, scenario)
		if len(broken) > 0 && (must == "" || slices.Contains(broken, must)) {
			return
		}
		t.Logf("scenario %s found %v broken, want %s", scenario, broken, must)
	}
	t.Error("no run noticed the mutant")
}

func brokenIn(t *testing.T, command, scenario string) (musts []string) {
	t.Helper()
	err := peer.Run(t.Context(), peer.Config{
		Command: conformance.Command{Line: command}, Scenarios: peer.Named(scenario), AtOnce: 1, Longest: natstest.Patience,
		Result: func(r peer.Result) {
			for _, b := range r.Broken {
				musts = append(musts, b.Must)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return musts
}
