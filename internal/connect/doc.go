// Package connect finds the NATS server that a command is meant for and connects
// to it.
//
// The first of these that is set decides: an explicit URL, an explicit NATS
// context, NATS_URL (with NATS_CREDS), the context that the nats CLI has selected,
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
//   - A context with a JetStream domain or API prefix is refused: raw publishes
//     to a bucket do not go through it. Rejected: ignoring the setting.
//   - Passwords and tokens in URLs are never printed.
package connect
