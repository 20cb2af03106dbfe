// Package node keeps the lease of a process, and proves other nodes dead.
//
// A node is one incarnation of a process. It has one key in the nodes bucket and writes it
// every tenth of the lease (Node). Some processes watch the keys of the others (Peers). Two
// rules make the owner of a claim unique without comparing two clocks:
//
//   - Trust ends early. A node trusts itself until the time before it sent its last
//     acknowledged heartbeat, plus the lease, minus a margin. It measures this on a clock
//     that counts suspend. A slow success never lengthens trust. What the node runs ends
//     within the margin.
//   - Death is a won write. A challenger that has seen a key unchanged for a whole lease, on
//     its own clock, writes "fenced" at the revision that it saw. If the node was alive, its
//     heartbeat has moved the key and the write conflicts. If the write is won, the next
//     heartbeat of the node conflicts, however late it is. The node then cancels everything
//     and starts again under a new name.
//
// No node starts a handler beside a living owner. The heartbeat that the challenger saw was
// stored after it was sent, and the challenger waits a whole lease from when it saw it. The
// owner gave up a margin before a lease from when it sent it.
//
// A node whose trust has lapsed never goes on under its name, even if its heartbeat would
// still be accepted. Its handlers were cancelled, so its slots must be taken over and not
// continued.
//
// The watch never decides. If a watch stalls, a challenger believes that a key is unchanged,
// and its write is refused.
//
// Only the producers that take part in publishing watch (package producer): a handful,
// however large the fleet is. They fence every node that falls silent. Other nodes read a
// key when they need to know, once a second, and find it fenced. If no process watches,
// their own stopwatch, which began at their first read, runs out after a lease.
//
// A node that stops writes that into its key, so its slots are taken over at once. A missing
// key must also have been missing for a whole lease, because an operator may have deleted
// the key of a living node. It is fenced by creating it.
//
// docs/decisions/0042 has the rejected alternatives.
package node
