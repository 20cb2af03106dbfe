// Package node keeps a process alive in the eyes of its fleet, and proves others
// dead.
//
// A node is one incarnation of a process. It has one key in the nodes bucket,
// which it writes every tenth of the lease (Node), and some watch the keys of the
// others (Peers). Two rules make an owner unique without comparing any two
// clocks:
//
//   - Trust ends early. A node trusts itself until *before it sent* its last
//     acknowledged heartbeat + lease - margin, on a clock that counts suspend. A
//     slow success never lengthens trust. What it runs ends within the margin.
//   - Death is a won write. A challenger that has seen a key stand still for a
//     whole lease, on its own clock, writes "fenced" over it *at the revision it
//     saw standing*. If the node was alive after all its heartbeat has moved the
//     key, and the write conflicts. If the write is won, the node's next
//     heartbeat, however late, conflicts: it cancels everything and starts over
//     under a new name.
//
// Why nobody starts beside a living owner: the heartbeat that the challenger saw
// landed after it was sent, and the challenger waits a whole lease from when it
// saw it; the owner gave up a margin before a lease from when it sent it.
//
// A node whose trust has lapsed never goes on under its name, even when its
// heartbeat would still be accepted: its handlers were cancelled, and a slot that
// it claimed must be taken over, not continued.
//
// Decisions:
//
//   - One heartbeat a process, not one a slot: a thousand running slots cost the
//     broker as much as none. Rejected: renewing each claim (a slow slot's record
//     would change under the readers' feet, and the broker's load with the work).
//   - When within that tenth is the caller's to say: a heartbeat is also what tells
//     the broker's clock, and is worth most shortly before something is due.
//   - The watch only tells; it never decides. A watch that stalls makes a
//     challenger believe that a key stands still, and its write is then refused.
//     Rejected: TTL keys (an expiry is judged by the broker's clock, a renewal
//     that timed out cannot be told from one that came too late, and kv.Update
//     drops the TTL).
//   - Only a few watch: those producers that take part (package producer), a handful
//     however large the fleet is. They fence whoever falls silent, whether or not
//     they want anything of it. The others look a node up when they are asked
//     about it, once a second, and find it fenced; should nobody watch, their own
//     stopwatch, which began when they first looked, runs out after a lease.
//     Rejected: everybody watches (a hundred nodes that see fifty heartbeats a
//     second each), and nobody does (a takeover would take two leases).
//   - A stopped node says so in its key, so that what it left is taken over at
//     once. Rejected: deleting the key (its revision would be gone, and with it
//     the proof).
//   - A key that is not there must have been seen missing for a whole lease too:
//     somebody may have deleted the key of a node that lives. It is then fenced
//     by creating it.
package node
