// Package facts tests surprising behaviour of nats-server and its Go client, one test
// for each fact. The tests do not test Cronce: they fail when an upgrade changes
// something that a decision of Cronce depends on. The comment of each test names the
// decision, and what to reconsider when the test fails. If the server now does more than
// Cronce needs, changing the test is enough.
//
//  1. A work queue forgets the message IDs of what was acked at a restart.
//  2. A change of leader or a restart redelivers what is in flight at once.
//  3. Acks do not fence.
//  4. Update takes a key's time to live away.
//  5. Replicas answer with the value before.
//  6. One server checks the revision before the message ID, three do the opposite.
//  7. Replicas refuse writes in flight that share a guard.
//  8. WithScheduleAt cuts off fractions of seconds.
//  9. A server that does not listen for clients does not listen for routes either.
//  10. A killed leader stops writes for seconds.
//  11. A nak's delay and a consumer's BackOff add up.
//  12. No advisory says that a message has spent its deliveries, until a client pulls.
//  13. The older value comes back when the newest expires.
//  14. Times to live are whole seconds.
//  15. An atomic batch is slow on one server.
//  16. Three replicas answer an ack before the message is gone.
//  17. A client of a domain must prefix raw keys; two streams may store one message.
//  18. An imported API delivers one message for each pull, and watches are silent.
//  19. Wildcards are stored as they stand, and a long subject costs the connection.
//  20. A purge of one subject makes the server forget other messages in flight.
//  21. A server that dies in the middle of a batch stores all of it or nothing.
//
// # What is not shown
//
// Some facts depend on timing (5, 6, 7, 8, 14, 15, 16). Their tests repeat until the fact
// is seen once; they do not say how often it happens. For fact 10 the test shows only
// that no write is answered, and none is refused. Facts 9 and 12 say that something never
// happens: their tests also run a case in which it does happen.
//
// # Decisions
//
// The tests share one cluster of three servers; tests that restart or kill a server
// have their own. Rejected: real nats-server processes in all tests, which cost a
// build. Only fact 10 needs a process, because a server that shuts down in order hands
// its leadership over first; its process is the test binary itself.
package facts
