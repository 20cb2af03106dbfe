// Package embed runs a NATS server with JetStream inside the process, for users
// without one: the same command in three terminals is a fleet of three.
//
// JoinOrStart joins the server that answers on the address, or starts one. If several
// processes start at once on one store, exactly one serves: the process that holds the lock on
// the store. The others join its server. When the server stops or is killed, one of them
// takes the lock, opens the same files and listens on the same port. All connections,
// including the serving process's own, use TCP and reconnect.
//
// # Which server may be taken over
//
// An embedded server is called cronce-RANDOM, new at every start. Its process writes
// that name into the lock file of its store before it listens. If a process reads
// the same name in the INFO of the server and in the lock file of its own store,
// the server serves the files of that store, and the process may take over. In every
// other case (a nats-server that was started separately, a cronce server on another
// store) the process never serves on that address: when the server stops, it waits
// until the server is back. To clients, another server with other files would look
// like a restart that lost everything.
//
// # Decisions
//
//   - The lock is flock (LockFileEx on Windows): the kernel releases it with the
//     process, however that ends. Rejected: a PID file, which a crash leaves
//     behind; the port alone, which does not protect the store from a second
//     server on another port.
//   - The lock is released last, after the server has closed its files, and taken
//     first. A process that is stopped (SIGSTOP) keeps lock and port: no process
//     can take over from it, as with a frozen external server.
//   - A member holds one idle connection to the server, so the kernel reports the
//     server's end. Rejected: polling, which takes CPU time all day.
//   - Every write is synced (SyncAlways), because every promise of Cronce depends on
//     acknowledged writes. JetStream's default syncs every two minutes.
//   - Loopback by default, because the embedded server has no authentication.
package embed
