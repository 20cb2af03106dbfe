// Package doctor finds what is wrong with a namespace, or will be: what was seen, why it
// matters, and the command that mends it. Gather asks the broker and changes nothing. Check
// is pure: it takes facts and returns findings. Only ResetWatermark writes.
//
// # Levels
//
// An error is something that does not work, or is lost, now. A warning is a risk: it will do harm
// when something else fails, or if it is left as it is. Both count: "cronce doctor" then exits with
// 3. A note is worth knowing and does not count: a single server, or what the broker does not
// reveal to this login.
//
// # Limits
//
// A server reveals only on its monitoring port, and to its system account, whether it syncs
// its writes. So the doctor asks the monitoring port if it has the URL. Servers that cronce
// embeds are known by their names and always sync. For any other server the doctor says that
// it does not know. A connection reveals the version of only one server of a cluster.
//
// If a worker was stopped or cut off for longer than its lease, another worker took over its slot
// and its completion was refused. That event is what the doctor counts. A fenced node alone proves
// nothing: a killed process is fenced too.
//
// # Reset of the watermark
//
// A watermark says "every slot due up to T was published, under registry revision R".
// It can be wrong in two ways that no producer can mend, since no producer moves it back. A
// clock in the future moved T ahead, and nothing is due until then. Or the registry was
// created again or restored, so that its revisions began again, and no producer can write a
// watermark with a smaller R.
//
// ResetWatermark writes, at the revision that it checked:
//
//   - T as it is. If T is ahead of the clock or cannot be read, or if the reset of a right
//     watermark is forced, it writes the broker's time less the horizon, since it is not
//     known what was published. A right watermark that is older stays: the slots since then
//     have no record yet. Slots older than the horizon must not run. Younger slots are
//     offered again: those with a record are settled by it, since the ledger remembers longer
//     than the horizon (invariant 7). The others run, or are recorded as missed, by the
//     catch-up policies of their jobs.
//   - R zero, and T as the time up to which the registry was known. A plan that came into
//     force by then is followed from T on, a younger plan from its beginning.
//
// Unless it is forced, it refuses to reset a watermark that is right, because offering a day of
// slots again costs a day of messages. It also refuses to reset a watermark of a newer format,
// because a newer program may run. Running producers notice the reset and start over (package
// producer). If a producer moves the watermark at the same time, the reset is a conflict.
//
// # Decisions
//
//   - All but the reset works with the permissions of a viewer. So the ledger is listed, and
//     not followed by a consumer, which only nodes may create.
//   - A queue from which no worker requests messages is checked twice before it is reported,
//     because a worker has no request for a moment between two slots.
package doctor
