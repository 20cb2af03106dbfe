// Package replica is one process of the fleet. It applies its jobs to the registry, keeps a
// node alive, produces and consumes, and starts again under a new name when its lease is
// lost. The library and the binary both run a Replica.
//
// The parts meet only here. producer and consumer declare what they need, kv stores,
// internal/fleet/node keeps the lease, and internal/fleet/clock knows the broker's time.
// None of them imports another.
//
//   - An incarnation is a node with everything that runs under its name. When the lease is
//     lost all of it ends. The producer needs no lease, but ends too and starts again from
//     the watermark, as it must after the broker was away.
//   - Nothing is produced before the broker's clock is known. A local clock that is an hour
//     fast would publish an hour of slots.
//   - If two nodes have different definitions of a job, the node whose definition was
//     replaced logs that. Of two files that disagree the older one is most often the
//     forgotten one. Only the content is compared, so a pause or a third writer of the same
//     content is not logged again.
//   - The registry is watched once. The watch of the producer also feeds the workers' View
//     (internal/fleet/registry). The registry may hold a million jobs of other processes, so
//     at the start a replica reads its own jobs by name.
//   - A replica that may not write the registry learns that from its first write, because no
//     server tells a client its permissions before.
//   - A replica whose producer takes part watches the heartbeats of the fleet and fences
//     silent nodes. Others read the records of single nodes when they need them, and the
//     stamps of their own heartbeats. So the cost of heartbeats grows with the number of
//     nodes and not with its square.
//   - A node does not exit when its namespace is gone. It sets the namespace up again with
//     its own settings, or waits for a login that may, and applies its jobs again. If it
//     exited, its supervisor would start it again and it would find the same.
//   - A replica reports events to an Observer and returns its state from Stats. It knows no
//     metrics. What only the broker knows (the stored watermark, the backlog of the queues)
//     is read every few seconds, and only with an observer, so that a scrape does not wait
//     for the broker.
//   - Live does not depend on the broker, Ready does. Restarting a node because the broker
//     is away ends handlers that may finish, and finds no broker either.
//   - A node writes that it has stopped only when no handler runs. A handler that ignores
//     its context keeps its slot until the lease expires.
package replica
