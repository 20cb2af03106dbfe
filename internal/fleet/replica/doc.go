// Package replica is one process of the fleet. It applies its jobs to the registry, keeps a
// node alive, produces and consumes, and starts again under a new name when its lease is
// lost. The library and the binary both run a Replica.
//
// The parts meet only here. producer and consumer declare what they need, kv stores,
// internal/fleet/node keeps the lease, and internal/fleet/clock knows the broker's time.
// None of them imports another.
//
//   - An incarnation is a node with everything that runs under its name. When the lease is
//     lost, all of it ends. The producer needs no lease, but ends too and starts again from
//     the watermark, as it must after the broker was away.
//   - Nothing is produced before the broker's clock is known. A local clock that is an hour
//     fast would publish an hour of slots.
//   - If two nodes have different definitions of a job, the node whose definition was
//     replaced logs that: usually an old job file was left on it. Only the content is compared, so
//     neither a pause nor the same content from a third writer is logged again.
//   - The registry is watched once. The watch of the producer also feeds the workers' View
//     (internal/fleet/registry). The registry may hold a million jobs of other processes, so
//     at the start a replica reads its own jobs by name.
//   - A replica whose login may not write the registry finds that out at its first write, because
//     a server does not tell a client its permissions.
//   - A replica whose producer takes part in publishing watches the heartbeats of the fleet and
//     fences silent nodes. Other replicas read the records of single nodes when they need them,
//     and the timestamps of their own heartbeats. So the cost of heartbeats grows with the number
//     of nodes and not with its square.
//   - A node does not exit when its namespace is gone. It sets the namespace up again with
//     its own settings, or waits until another login does, and applies its jobs again. If it
//     exited, its supervisor would start it again, and it would find the same.
//   - A replica reports events to an Observer and returns its state from Stats. It has no metrics
//     itself. It reads the stored watermark and the backlog of the queues from the broker every few
//     seconds, and only with an observer, so that a scrape does not wait for the broker.
//   - Live does not depend on the broker, Ready does. A restart while the broker is away would end
//     handlers that could finish, and would not bring the broker back.
//   - A node writes that it has stopped only when no handler runs. A handler that ignores
//     its context keeps its slot until the lease expires.
package replica
