// Requests between nodes about a slot: to end an attempt, and whether a node holds a claim (docs/protocol.md, section 11,
// Cancel and Ask).
import { randomUUID } from "node:crypto";
import { cancelled, fenceOf } from "./claim.js";
import { about } from "./event.js";
import { Invalid, parseSlot, slotID, slotKey } from "./names.js";
import { decode, rawMember } from "./values.js";

export class Requests {
  constructor(worker) { this.worker = worker; }

  // end ends a slot that a newer one replaces: it asks the owner to end it, or writes the outcome if the slot has no owner.
  // Then it publishes the slot's message, for the worker that takes the slot out of its lock.
  async end(record, revision, by) {
    if (record.state === "running") {
      const request = JSON.stringify({ v: 1, id: record.id, fence: revision, replaced: true, by });
      return void (await this.ask(record.node, request, 2000).catch(() => {}));
    }
    const slot = parseSlot(record.id), v = { record, revision, now: this.worker.node.now(), self: this.worker.node.name };
    const outcome = cancelled({ message: { slot } }, v, `replaced by ${by}`);
    const { won } = await this.worker.put(slotKey(slot), outcome, revision);
    if (!won) return;
    this.worker.emit("cancelled", { ...about(outcome, fenceOf(outcome, won)), error: outcome.error });
    await this.worker.locks.publishCalls([{ record: outcome, revision: won }], this.worker.registry.entries.get(slot.job));
  }

  // ask sends a request to a node. The node may not be permitted to publish to any other reply subject.
  ask(node, request, timeout) {
    const { nc, namespace } = this.worker.store;
    return nc.request(`${namespace}.node.${node}.cancel`, request, { timeout, noMux: true, reply: `${namespace}.reply.${randomUUID()}` });
  }

  // disowns reports whether the owner of a record says that it does not hold the claim. No answer proves nothing. old says
  // whether the slot is too old to be started: then an attempt whose context has ended counts as given up.
  async disowns(record, revision, old) {
    const request = JSON.stringify({ v: 1, id: record.id, claim: revision });
    const answer = await this.ask(record.node, request, 1000).then((m) => decode(m.string())).catch(() => undefined);
    if (!answer || answer.error || typeof answer.holds !== "boolean") return false;
    return !answer.holds || (old && Boolean(answer.ended));
  }

  // answer answers a request to this node: to end one attempt, or to say whether this process has the slot in
  // flight.
  answer(m) {
    let answer = { v: 1, ending: false };
    try {
      const { slot, claim, fence, cause } = cancelRequest(m.string());
      if (claim) {
        // Without trust, this node cannot deny the claim: its last write may still be stored.
        if (!this.worker.node.trusted()) return;
        const flight = this.worker.inflight.get(slotKey(slot));
        answer = { v: 1, holds: flight !== undefined, ...(flight?.controller.signal.aborted && !flight.returned && { ended: true }) };
        return m.respond(JSON.stringify(answer));
      }
      const id = slotID(slot);
      const flight = [...this.worker.inflight.values()].find((h) => h.id === id && String(h.fence) === fence && h.node === this.worker.node.name);
      if (flight && !flight.returned && (flight.ending !== undefined || !flight.controller.signal.aborted)) {
        flight.ending = cause;
        flight.controller.abort(new Error(flight.ending));
        answer.ending = true;
      }
    } catch (err) {
      answer.error = err.message;
    }
    m.respond(JSON.stringify(answer));
  }
}

// cancelRequest reads a request to a node: {slot, fence, cause} to end an attempt, or {slot, claim} to say
// whether the slot is in flight. Revisions are strings, because a Number cannot hold all of them.
export function cancelRequest(text) {
  const { id, by, replaced } = decode(text), slot = parseSlot(String(id));
  const revision = (name) => (/^[1-9][0-9]*$/.exec(rawMember(text, name) ?? "") ?? [])[0];
  const claim = revision("claim"), fence = revision("fence");
  if (claim) return { slot, claim };
  if (!fence) throw new Invalid("a request to cancel names no fence: want the revision of the running record");
  const name = clean(String(by ?? "")) || "nobody knows";
  return { slot, fence, cause: replaced ? `replaced by ${name}` : `cancelled by ${name}` };
}

// clean removes characters that cannot be printed, and cuts the name to 256 bytes.
const clean = (name) => Buffer.from(name.replace(/\p{C}/gu, "")).subarray(0, 256).toString().replace(/\uFFFD+$/, "");
