// A node's estimate of the broker's clock (docs/protocol.md, section 9). All times are in ms.
import { uptime } from "node:os";

const drift = 0.0005; // an error bound grows by half a millisecond with each second
const jitter = 1; // tolerated when two estimates are compared

export class BrokerClock {
  // observe makes an estimate from a heartbeat: sent and acknowledged are times of the node's clock, and
  // stamp, in between, is one of the broker's. The estimate with the smaller error bound is kept. If the two
  // contradict each other, a clock was set, and the newer one is kept.
  observe(sent, acknowledged, stamp) {
    const next = { offset: stamp - (sent + acknowledged) / 2, error: (acknowledged - sent) / 2, at: acknowledged };
    const { best } = this;
    const apart = best && next.error + this.error(next.at) + (next.at - best.at) * drift + jitter;
    if (!best || next.error <= this.error(next.at) || Math.abs(next.offset - best.offset) > apart) this.best = next;
  }

  // offset is the broker's clock minus the node's. error bounds the error of offset, at a time of the node's clock.
  get offset() { return this.best?.offset ?? 0; }
  error(at) { return this.best ? this.best.error + Math.max(at - this.best.at, 0) * drift : Infinity; }
}

export const behind = 5; // bounds how late boot is, after a call of uptime

// boot is a clock that goes on while the machine is suspended, as os.uptime does. On Linux, os.uptime reads a file, so boot
// calls it again only if the clock of the process has moved by a few ms, or the wall clock has, in any direction. The
// first one stops during a suspend. But a suspend moves the wall clock as far as uptime, so the next call of boot sees it.
let last, lastWall, lastTick;
export function boot() {
  const wall = Date.now(), tick = performance.now();
  if (wall >= lastWall && wall < lastWall + behind && tick < lastTick + behind) return last;
  [last, lastWall, lastTick] = [uptime() * 1000, wall, tick];
  return last;
}

// steady is a clock that cannot be set: that of the process, plus the time for which the machine was suspended.
// boot counts that time, but some systems have it in whole seconds only. So steady may be up to two seconds late
// after a suspend, and never early.
let suspended = boot() - performance.now();
export function steady() {
  const gap = boot() - performance.now();
  if (gap > suspended + 2000) suspended = gap - 1000;
  return performance.now() + suspended;
}
