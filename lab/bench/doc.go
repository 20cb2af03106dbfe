// Package bench measures what a fleet costs and what the broker could do. Each measurement of
// the fleet has a ceiling: the same operations on the broker, written by hand with the client
// library. The ratio of the two can be compared between machines.
//
// The ceiling of a drain pulls messages in batches, writes a record for each with an expected
// revision of 0, writes a second record over it, and acks, with all of that in flight at
// once. If the server supports atomic batches, the ceiling also tries to write the records in
// batches. The faster way counts. The ceiling has no handlers, no lease, no events, and no table of
// slots in flight. Its values are as large as those of the fleet, and its streams are configured
// alike. So the difference between the two is what a scheduler adds.
//
// The ceiling of a burst is a drain of as many slots, because a burst should not take much longer.
// The result also has the time to publish and drain the slots concurrently by hand, which is the
// same work as a burst.
//
// Publishing is timed from the instant at which all slots are due, and by hand from the first
// message that is sent. No producer joins or leaves meanwhile. Lateness and cost are those of a
// fleet under a small steady load. What the fleet sends when nothing is due is subtracted,
// because it does not grow with the number of slots.
//
// No machine is quiet, so figures of different runs are never compared. Within a run, the two parts
// of a ratio are measured in turn.
package bench
