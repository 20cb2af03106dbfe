// Package node keeps the lease of a process, and proves other nodes dead.
//
// A node is one incarnation of a process. It has one key in the nodes bucket and writes it
// every tenth of the lease (Node). Some processes watch the keys of the others (Peers). Two
// rules make the owner of a claim unique without comparing two clocks:
//
//   - Trust ends early. A node trusts itself for the lease minus a margin, counted from before it
//     sent its last acknowledged heartbeat, so a slow acknowledgement does not extend the trust.
//     It measures this on a clock that counts suspend. What the node runs ends within the margin.
//   - Death is a won write. A challenger that has seen a key unchanged for a whole lease, on
//     its own clock, writes "fenced" at the revision that it saw. If the node was alive, its
//     heartbeat has moved the key and the write conflicts. If the write is won, the next
//     heartbeat of the node conflicts, however late it is. The node then cancels everything
//     and starts again under a new name.
//
// So no node starts a handler beside a living owner. The owner counts from when it sent its last
// heartbeat, and stops a margin before the lease is over. The challenger counts from when it saw
// that heartbeat, which is later, and waits for the whole lease.
//
// A node whose trust has lapsed never goes on under its name, even if its heartbeat would
// still be accepted. Its handlers were cancelled, so its slots must be taken over and not
// continued.
//
// The watch never decides. If a watch stalls, a challenger believes that a key is unchanged,
// and its write is refused.
//
// Only the producers that take part in publishing watch (package producer): a handful, however
// large the fleet is. They fence every node that falls silent. A node that does not watch reads a
// key once a second while it needs the answer, and finds the node fenced. If no process watches,
// the reading node measures the lease itself, from its first read, and then fences the node.
//
// When a node stops, it writes "stopped" into its key, and its slots can be taken over at once. If
// a key is missing, the challenger also waits a whole lease, because an operator may have deleted
// the key of a living node. It then fences the node by creating the key.
//
// docs/decisions/0042 has the rejected alternatives.
package node
