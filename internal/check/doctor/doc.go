// Package doctor looks at a namespace and says what is wrong with it, or will be:
// what, why it matters, and the command that mends it. Gather asks the broker, and
// changes nothing; Check is pure: facts in, findings out. Only ResetWatermark
// writes.
//
// # Levels
//
// An error is something that does not work, or is lost, now. A warning is something
// that will cost slots, or more than it should, when the next thing goes wrong: both
// count. A note is worth knowing and nobody's fault (a single server has no second
// one; what the broker does not tell to these credentials): it does not count.
//
// # What cannot be known
//
// Whether a server syncs its writes is told to its system account and on its
// monitoring port only; a plain connection learns nothing of it. So the monitoring
// port is asked, if it is given, and the servers that cronce embeds, which are known
// by their names, always sync. Of any other server the doctor says that it does not
// know. Likewise the versions: the connection tells that of one server of a cluster.
//
// A run gap shows by what it did: a completion that was refused, since its worker had
// stood still, or been cut off, for longer than its lease, and had been replaced. A
// fence alone says nothing: a process that was killed is fenced too.
//
// # The watermark's reset
//
// A watermark says "all that is due up to T was published, of the registry up to
// revision R". It goes wrong in two ways that no producer can mend, since none ever
// moves it back: a clock in the future carried T there, and nothing falls due until
// then; or the registry was made anew or restored, its revisions began again, and
// nobody can write a watermark that says less than R.
//
// ResetWatermark writes, at the revision of the one that it judged:
//
//   - T as it is, or the broker's now less the horizon when T is ahead of the
//     clock, or cannot be read. Nobody knows any more what was published; what is
//     older than the horizon must not run in any case. The younger slots are offered
//     again. Those that have a record are settled by it, as the ledger remembers
//     longer than the horizon (invariant 7); the others run, or are recorded as
//     missed, by their jobs' catch-up policies.
//   - R zero, and T as the time up to which the registry was known. A plan that came
//     into force by then is followed from T on, and a younger one from its beginning:
//     what follows T in either case.
//
// It is refused while the watermark is right, unless it is forced: to offer a day of slots
// again costs a day of messages. One of a newer format must be forced too, since a program
// that knows it may run. Producers that run notice the reset and start over (package
// producer); one that moves the watermark at the same moment makes the reset a
// conflict.
//
// # Decisions
//
//   - What a viewer may ask is enough for all but the reset: so the ledger is listed
//     as every listing does, not followed by a consumer, which only nodes may make.
//   - A queue that workers serve, and that nobody asks for messages, is looked at
//     twice before it is told: between two slots there is such a moment.
package doctor
