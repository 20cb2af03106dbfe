// Package bench measures what a fleet costs and what the broker could do: each
// measurement of ours has its ceiling, the same broker operations written by hand
// with the client library, so that a ratio means something on any machine.
//
// The ceiling of a drain pulls messages in batches, writes a record for each with
// an expected revision of 0, a second one over it, and acks; all in flight at
// once, with no handler, no table of obligations, no lease and no event. The
// values are as large as ours, the streams set up as ours. What it leaves out is
// exactly what a scheduler adds.
//
// A burst is held against a drain of as many, since this is what it must not take much longer
// than; it is also said how long it takes by hand to publish and drain them at once, which is
// the same work.
//
// Publishing is timed by the broker's timestamps of the first and the last message:
// of slots that are all due in one second, when nobody joins or leaves. Lateness
// and cost are those of a fleet under a small steady load; what it sends when
// nothing is due is taken off, since it does not grow with the slots.
//
// The machine is never quiet, so nothing here is compared across runs: a ratio is
// made of measurements that took turns.
package bench
