// Package facts tests surprising behaviour of nats-server and its Go client, one test
// for each fact. The tests do not test Cronce: they fail when an upgrade changes
// something that a decision of Cronce depends on. The comment of each test names the
// decision, and what to reconsider when the test fails. If the server now does more than
// Cronce needs, changing the test is enough.
//
//  1. At a restart, a work queue forgets the message IDs of acked messages.
//  2. After a change of leader or a restart, the server redelivers at once what is in flight.
//  3. Acks do not fence.
//  4. Update removes the time to live of a key.
//  5. Replicas may answer a read with the previous value.
//  6. One server checks the revision before the message ID. Three servers do the opposite.
//  7. If several writes in flight name the revision of the same other key, replicas refuse all but
//     one.
//  8. WithScheduleAt cuts off fractions of seconds.
//  9. A server that does not listen for clients does not listen for routes either.
//  10. When a leader is killed, no write is stored for seconds.
//  11. The delay of a nak and the consumer's BackOff add up.
//  12. The server announces that a message has used up its deliveries only when a client pulls.
//  13. When the newest value of a key expires, the older one becomes current again.
//  14. Times to live are whole seconds.
//  15. An atomic batch is slow on one server.
//  16. Three replicas answer an ack before they remove the message.
//  17. A client of a domain must prefix the subjects of keys to which it publishes directly. Two
//     streams on both sides of a leaf node may store one message.
//  18. An imported API delivers one message for each pull, and watches stay silent.
//  19. The server stores messages on subjects with wildcards, and closes the connection for a subject
//     that is too long.
//  20. A purge of one subject makes the server forget other messages in flight.
//  21. If a server dies in the middle of a batch, every batch that it acknowledged is whole.
//  22. The server does not check the reply subject of what a client publishes.
//
// # What is not shown
//
// Some facts depend on timing (5, 6, 7, 8, 14, 15, 16). Their tests repeat until the fact
// is seen once; they do not say how often it happens. For fact 10 the test shows only
// that writes are neither answered nor refused. Facts 9 and 12 say that something never
// happens: their tests also run a case in which it does happen.
//
// # Decisions
//
// Most tests share one cluster of three servers. Tests that restart or kill a server have their own.
// Rejected: real nats-server processes in all tests, because they must be built first. Fact 10 needs
// a process, because a server that shuts down in order first hands its leadership over. That process
// is the test binary itself.
package facts
