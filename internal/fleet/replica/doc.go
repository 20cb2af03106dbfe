// Package replica is one process of the fleet: it brings its jobs into the
// registry, keeps a node alive, produces and consumes, and starts over under a
// new name when its lease is lost. The facade and the binary are two doors to it.
//
// Here, and only here, the parts meet: producer and consumer each declare what
// they need, kv remembers, internal/fleet/node lives, internal/fleet/clock knows the broker's
// time. None of them knows another.
//
// Decisions:
//   - An incarnation is a node with all that runs in its name. When the lease is
//     lost all of it ends, the producer too, though it needs no lease: it starts
//     over from the watermark, which is what it has to do after a broker was away.
//   - Nothing is produced before the broker's clock is known: a local clock that
//     is an hour fast would publish an hour of slots.
//   - Whose definition of a job gives way says so too, not only whose holds: of two
//     files that disagree the older one is most often the forgotten one. What is
//     compared is the content, so that a pause, or a third writer of the same, is
//     not told again.
//   - The registry is watched once: what a producer's watch tells, the copy for the
//     workers is told too (internal/fleet/registry, which keeps what this process needs).
//     It may hold a million jobs that are none of ours, so at the start ours are
//     asked for by name.
//   - A replica that may not write the registry finds out by trying, with the first
//     job that is to be written: no server tells a client what it may do before.
//   - A replica whose producer takes part watches the heartbeats of the fleet, and
//     fences who falls silent; the others look up whom they have a question about,
//     and their own stamps, so that what heartbeats cost grows with the nodes and
//     not with their square.
//   - A node does not end when its namespace is gone: it sets it up again by its own
//     settings, or waits for a login that may, and brings its jobs in again. Rejected: to
//     end, for a supervisor to start it again (each start then finds the same).
//   - A replica is measured from outside: it tells an Observer what happens, and
//     Stats what is, and knows no metrics. What only the broker knows (the stored
//     watermark, what waits in the queues) is asked of it every few seconds, and
//     only when there is an observer: a scrape does not wait for the broker.
//   - Live does not look at the broker, Ready does. A node that is restarted because
//     the broker is away ends handlers that may finish, and finds no broker either.
//   - A node says that it stopped only when it owes nothing any more. A handler
//     that ignores its context holds its slot until the lease runs out.
package replica
