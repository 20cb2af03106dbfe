// Package connect finds the NATS server that a command should use, and connects to it.
//
// It uses the first of these that is set: an explicit URL, an explicit NATS context,
// NATS_URL (with NATS_CREDS and the other NATS_ variables), the context that the nats CLI has
// selected. If none is set, it uses the loopback default, where a process may embed a server.
//
// # Decisions
//
//   - The first connection attempt fails at once with the reason. Only an established
//     connection reconnects for ever. So a wrong URL does not look like a slow start.
//   - The client buffers nothing while it is disconnected. A late write is worse than a
//     failed one, because its caller has repeated it or given up by then.
//   - The client pings every 5 s and tolerates two missing answers. So it detects a frozen
//     server, whose sockets stay open, within 15 s.
//   - A server has three seconds for the handshake, and more time after a handshake timed out.
//     With a short limit, the client soon tries the next server of a cluster. Since the limit
//     grows, it reaches a slow server too.
//   - A refused login does not end an established connection. Credentials are rotated, and
//     servers start before their accounts exist. nats.go alone would close the connection
//     for good at the second refusal.
//   - Credentials come from one source: the flags, else the CRONCE_ variables, else a context
//     or (with NATS_URL) the NATS_ variables. Only the password of a user may come from a later
//     variable: passwords and tokens have no flag, because every user of the machine can read
//     flags.
//   - The connection has the JetStream domain or API prefix of the flag or the context
//     (Conn.JetStream), so no caller can forget it.
//   - Passwords and tokens in URLs are never printed.
package connect
