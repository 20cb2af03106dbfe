// Package connect finds the NATS server that a command should use and connects to
// it.
//
// The first of these that is set is used: an explicit URL, an explicit NATS
// context, NATS_URL (with NATS_CREDS and the like), the context that the nats CLI has selected,
// and else the loopback default, where a server may be embedded.
//
// # Decisions
//
//   - The first connection fails at once and says why; only an established one
//     reconnects for ever. A wrong URL should not look like a slow start.
//   - The client buffers nothing while it is disconnected. A write that lands late is
//     worse than a failed one: by then its author has repeated it or given up.
//   - Pings every 5 s, two may be missed: a frozen server, whose sockets stay
//     open, is noticed within 15 s.
//   - A refused login does not end an established connection. Credentials are
//     rotated and servers come up before their accounts; nats.go would close the
//     connection for good at the second refusal, and with it the fleet.
//   - All parts of a login come from one source: flags, CRONCE_ variables, a context or
//     (with NATS_URL) NATS_ variables. A user from one source with a password from
//     another would be a mistake. Passwords and tokens have no flag, because every user
//     of the machine can read flags.
//   - A JetStream domain or API prefix, from a flag or a context, belongs to the
//     connection (Conn.JetStream), so no caller can forget it.
//   - Passwords and tokens in URLs are never printed.
package connect
