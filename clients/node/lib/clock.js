// What a node knows of the broker's clock (docs/protocol.md, section 9). All in ms.

const drift = 0.0005; // a bound grows by half a millisecond with each second
const jitter = 1; // for what is not drift between two bounds

export class BrokerClock {
  // observe takes in a heartbeat: sent and acknowledged by one's own clock, stamp by
  // the broker's, in between. The narrowest bound counts, as wide as it has become; if
  // two do not meet a clock was set, and the newer one does.
  observe(sent, acknowledged, stamp) {
    const next = { offset: stamp - (sent + acknowledged) / 2, error: (acknowledged - sent) / 2, at: acknowledged };
    const { best } = this;
    const apart = best && next.error + this.error(next.at) + (next.at - best.at) * drift + jitter;
    if (!best || next.error <= this.error(next.at) || Math.abs(next.offset - best.offset) > apart) this.best = next;
  }

  // offset is the broker's clock minus one's own, and error how far from that it may be,
  // at an instant of one's own.
  get offset() { return this.best?.offset ?? 0; }
  error(at) { return this.best ? this.best.error + Math.max(at - this.best.at, 0) * drift : Infinity; }
}
