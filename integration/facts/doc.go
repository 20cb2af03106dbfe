// Package facts holds what the engine, nats-server and its client, really does
// where that is not what one would think, one test for each fact. The tests do
// not test Cronce: they fail when an upgrade changes something that a decision of
// ours stands on. The comment of each test names the decision, and what to think
// over again when it fails. Then either the decision is revised, or only the test
// is: a fact that has become kinder seldom needs anything at once.
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
//  12. Nobody is told that a message has spent its deliveries, unless somebody pulls.
//  13. The older value comes back when the newest expires.
//  14. Times to live are whole seconds.
//  15. An atomic batch is slow on one server.
//  16. Three replicas answer an ack before the message is gone.
//  17. A client of a domain must prefix raw keys; two streams may store one message.
//  18. An imported API delivers one message for each pull, and watches are silent.
//  19. Wildcards are stored as they stand, and a long subject costs the connection.
//  20. A purge of one subject takes other messages from who has them in hand.
//
// # What is not shown
//
// Facts that are a matter of luck (5, 6, 7, 8, 14, 15, 16) are looked for until
// they are seen once; how often that is, a test on a busy machine cannot say. Of
// fact 10 only the silence is shown, and that nothing is refused in it: which
// requests were under way in the moment of the kill is luck. Facts 9 and 12, that
// something never happens, are shown next to a witness to whom it happens.
//
// # Decisions
//
// The tests share one cluster of three servers; those that restart or kill a
// server have their own. Rejected: real nats-server processes throughout, which
// cost a build; only fact 10 needs a process, because a server that is shut down
// hands over first, and there the test binary itself is the server.
package facts
