// Package connect finds the NATS server that a command is meant for and connects
// to it.
//
// The first of these that is set decides: an explicit URL, an explicit NATS
// context, NATS_URL (with NATS_CREDS and the like), the context that the nats CLI has selected,
// and else the loopback default, where a server may be embedded.
//
// # Decisions
//
//   - The first connection fails at once and says why; only an established one is
//     kept up for ever. A wrong URL should not look like a slow start.
//   - Nothing is buffered while the server is away. A write that lands later than
//     its author believes is worse than one that failed: he has repeated or
//     given up on it by then.
//   - Pings every 5 s, two may be missed: a frozen server, whose sockets stay
//     open, is noticed within 15 s.
//   - A refused login does not end an established connection. Credentials are
//     rotated and servers come up before their accounts; nats.go would close the
//     connection for good at the second refusal, and with it the fleet.
//   - Who connects is decided as a whole, by a flag, CRONCE_ variables, a context or
//     (with NATS_URL) NATS_ variables: a user from one place with a password from
//     another is a mistake. Passwords and tokens have no flag: everybody on the
//     machine can read those.
//   - A JetStream domain or API prefix, from a flag or a context, comes with the
//     connection (Conn.JetStream): nobody can forget it.
//   - Passwords and tokens in URLs are never printed.
package connect
