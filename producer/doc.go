// Package producer publishes the slots of every job as they fall due. Any number
// of producers run beside each other, and need not know of each other: a slot's
// message ID is computed from the job and the instant alone, so what two of them
// publish is one message in the stream, or, where the stream has forgotten, one
// record in the ledger. Those that do hear of each other spare the broker the
// copies (see "Design: standing by").
//
// Programs get one from package cronce, or from "cronce run". [New] is for those that
// bring a broker of their own: [Config] says what it needs of one, and [Stats] what
// it did.
//
// # Design: the way of a slot
//
// A slot walks through four parts, all driven by one loop (shift):
//
//	registry events -> board -> outbox -> keeper -> stored watermark
//	                    due     acked     claimed
//
// The board knows every job and hands out what is due. The outbox publishes it,
// many at a time, and repeats what fails until it is acknowledged. The keeper
// writes the watermark. Board and outbox belong to the loop's goroutine and have
// no locks; only answers and registry events come from others, over channels.
//
// # Design: invariant 2: publish before the watermark moves; it never goes back
//
// The watermark (T, R, K) says: every slot due up to T has been published, of
// the registry as it was at revision R, whose newest timestamp is K.
//
//   - A claim is made only when the board has just said that nothing due at T is
//     left on it. Every slot due by then has thus been handed out (or is covered
//     by the watermark that was read at the start).
//   - What is handed out is an item in the outbox until the stream has
//     acknowledged it. The claim is noted as a mark behind all of them, and the
//     mark is passed on only when every item before it is settled.
//   - An item that goes back to the board unacknowledged takes all marks with
//     it; the next one is made after the board has handed it out again.
//   - The keeper writes at the revision it last read, only what is behind in
//     neither T nor R. A conflict means that another producer moved it: it is
//     read, and ours is written only if it is still ahead. A write without an
//     answer is repeated as it is, nonce included (invariant 8).
//   - An item may stand for copies that are held for another producer. It is settled
//     when none is left; those that become our duty are items in its place.
//   - What is claimed about the registry is what was known at the last Settled event.
//     A watch that catches up shows only the last write of each job, so a revision
//     stands for all before it only when nothing is pending.
//   - The board hands out each slot once, whatever the clock does. While it is
//     behind what was stored (a step back), what falls due of jobs that came up
//     since is handed out, and the keeper writes nothing.
//
// One thing moves it back: an operator, who resets one that a wrong clock carried
// into the future, or that knows more of the registry than there is. (A bucket
// restored from a copy does the same.) Whoever meets a stored watermark that is
// behind what it has seen, or behind the clock while its own board is ahead, throws
// its board away and starts over from the stored one, as after a restart: what is
// offered again folds, or finds its record. While what counts as published is ahead
// of the clock, or of the registry, the stored watermark is read every second, so
// that a reset is noticed. One that is gone resets nothing: there is no word in it,
// and to start over without one would offer all there ever was.
//
// A stored watermark that cannot be read stops no producer. One that runs knows what was
// published, and writes its own position at the revision that it found. One that starts
// goes on from the horizon, as after a reset: what is offered again finds its record. A
// watermark of a newer format is not written over, since a newer program keeps it.
//
// A definition of a newer format holds the watermark where it is: there may be
// slots that we cannot compute, and whose producer may die. A definition that is
// simply broken disables its job and holds nothing. Likewise, while a live producer has newer
// time zone data and a job has a time zone other than UTC, this producer does not move
// the watermark, and takes part only if it is alone.
//
// # Design: standing by
//
// Of the producers that take part, each job has a first: the one whose name and
// the job's hash together to the largest number. The first publishes the job's
// slots, its share; the others hold their copies, in batches, for each of which an item
// of the outbox stands. A producer announces "every slot of my share that is due up to
// T is acknowledged, for members E and registry R", when its share is acknowledged;
// it shows life ten times a second while it is not, and once a second otherwise.
//
// Why a dropped copy implies a stored one. A copy of a slot of definition d, due at
// D, held for f, is dropped when f has announced T >= D with the E and R that the
// holder has now, and when d is what the holder has now. It does not matter which comes
// first, the word or the copy: what was announced already is not held at all.
//
//   - R is a digest of the whole registry as the producer's board has it: each
//     job's revision and timestamp, and whether it could be used. It is the same
//     only if the two boards were made from the same entries. It is not a
//     revision: a watch that catches up shows the last writes only, so that two
//     producers at one revision may differ.
//   - E is a digest of the members' names, and of the version of the rules, of the
//     time zone data and of lateness. So whose share the job is, f computes as the
//     holder does, and the slots of d as well.
//   - f makes a mark when its board has just said that nothing due at T is left on
//     it. The slot was thus handed out by f (or is covered by the watermark that f
//     began with), before the mark.
//   - A mark holds for the E and R under which it was made (the epoch): f announces
//     it only while these stand. When E changes, every copy whose first is another
//     now is published; so of the items before the mark none that is of f's share
//     under E is standing. Those that are not standing must be settled: acknowledged, or
//     dropped on another producer's word, which by this same argument is as good.
//     (No two words lean on each other: each is said after the items it speaks of.)
//
// An announcement stays true for ever: it is about revisions that never come again,
// and about what is stored. So it does no harm late, and E going away and coming
// back is none either. The watermark needs all items settled, the dropped ones
// included, and so invariant 2 holds as before.
//
// Announcements carry no proof of who made them. So they are believed of those nodes only
// whose live record says that they produce, and not if they claim what is not due yet.
// What a false one suppresses all the same is known to the sweep as handed out, and is
// offered by it within a minute. And they are checked. Every 15 to 30 s a producer publishes
// one slot that a peer has announced as stored. Every 30 s a producer that rests publishes
// one slot on its board that fell due 15 s to 1 min ago, and reads the watermark: that is all
// that resting costs. If the others publish, the broker answers that it is a duplicate. If
// it does not, they have published nothing: they do not count for 10 min, the log names
// them, and the producer publishes in their place. The stored watermark is no evidence,
// since a login that announces can write it too. So a resting producer keeps the slots of the
// last minute whatever the watermark says, and goes on from these. An answer that took more
// than 1 s proves nothing. A broker that lost its duplicate window, as one server that was
// restarted, may cause a false alarm, which costs some copies.
//
// What is believed of who is alive decides nothing but the number of copies. A
// first that shows no life for standby_delay (250 ms), and for as long as the
// broker now takes to answer us, while copies are held for it does not count until
// it is heard again; one that lives and agrees is given two
// seconds, since it publishes as fast as the broker takes it, and does not count
// for ten if it used them up. One that disagrees is not waited for beyond the
// delay. Jobs that a producer cannot publish are named in its announcement, and
// tried by the others.
//
// Only a handful (5) of producers take part, the oldest incarnations, so that a
// newcomer shifts no shares. The others rest: they listen, know the registry, and
// do nothing. When fewer than five older ones are heard they go on from the
// watermark, as after a suspend: should all five die at once, that takes three
// seconds. A producer that cannot read a definition claims nothing and leaves the
// field to those that can; alone it does what it can.
//
// # Design: what a job newer than the watermark is owed
//
// All slots since its plan came into force, since whoever moved the watermark
// may not have known of it. But an entry's revision grows with every edit, of
// the payload say, and plans stay: so a plan is new if the entry's revision is
// newer than R *and* the plan began after K. The older plans of an edited job go
// on from T up to the edit, the new one begins at the edit, wherever T is.
//
// # Design: pauses and removals
//
// A job's timeline is cut into stretches: at each edit of its plan, and at the
// ends of its pauses ([job.Entry.Stretches]). A stretch is a line on the board. A
// pause ends the line that it falls into; what fell due before is on it still,
// and comes back to it as long as it is not acknowledged. When the pause has
// ended, what fell due in it is a line of its own, late at any age, and what comes
// after it another one. Both came to be with the entry that ended the pause, so
// that the rule above decides what a producer that starts owes of them: no crash
// around a resume loses them. A producer that was told of the pause late has
// published some of its slots on time; they are offered again, and fold, or find
// their record.
//
// The lines of a job that was removed, or whose definition cannot be read any
// more, end as well, at that time. They are of no task that the board knows, but
// what is on them, or comes back to them, is handed out: a slot that fell due has
// a right to its outcome. The exception: with all producers gone, nobody knows
// any more of what had not been published of a job when it was removed.
//
// # Design: lateness
//
// A slot that is handed out more than Late (1 min) after its due time is judged
// by its job's catch-up policy, all late slots of the job together (job.Due).
// This is one rule for a start after downtime, a suspend, and a broker that was
// away. In the latter two, unacknowledged items go back to the board, and the
// stored watermark is read again, so that what peers have published meanwhile is
// not judged. An item that fails for so long that its judgement is out of date
// takes its whole job back to the board. While there is no connection nothing is
// handed out.
//
// A range of missed slots is published only when all the job's other late slots are
// acknowledged. Its ID is that of its first slot: a producer that restarts a
// minute later computes a longer range under the same ID, which is folded into
// the shorter one; the slots between the two ends are those that the first
// producer had published one by one before.
//
// # Design: decisions
//
//   - The due heap holds groups of (schedule, next slot), not jobs. A million
//     jobs on a few hundred expressions are a few hundred entries, and a second
//     costs as much as it has slots. A job that was heard of late, or whose slots
//     go back, travels in a group of its own until it has caught up: there is no
//     second path for late slots. Rejected: one heap entry per job (memory, and
//     log n per slot); a timing wheel (schedules a year apart); asking "which
//     jobs match this second" (walks all jobs, and misses slots of busy seconds).
//   - The watermark is one key for all jobs. Rejected: one per job, which is a
//     write per slot.
//   - No batches. A mark in the stream of items is enough to know what may be
//     claimed, and neither a failing item nor a flood holds up other jobs' slots.
//     Rejected: waiting for each second's acknowledgements before the next.
//   - A producer that loses the race for the watermark stands aside for five
//     seconds and then looks whether it still moves. Rejected: all write every
//     second (n-1 conflicts a second).
//   - Who is alive is judged by announcements, not by the nodes' leases. A lease
//     takes 20 s to run out, in which each slot of the dead one's share would be a
//     quarter second late, and a hundred nodes that watch a hundred heartbeats cost
//     the broker thousands of messages a second. Nothing is lost by a wrong guess,
//     so there is nothing for a lease to prove: a producer that was fenced and does
//     not know it publishes what is right.
//   - The window of publications in flight widens while answers come within half a
//     second, from 4,096 up to 32,768, and narrows when they take two, or fail. A
//     server that has much to store at a time stores it faster, by a third (measured
//     with messages written by hand: 115,000 a second with 4,096 in flight, 130,000
//     with 16,384, 160,000 with all of 60,000); one that syncs each write would not
//     answer as many before they are given up, and any refuses those that are too many
//     (100,000 of a stream that it has yet to store, by default; 10,000 when older).
//     Rejected: a fixed window, too small for the one or too large for the other.
//   - Shares are computed for each slot when it is handed out: a hash of its job's
//     name and five mixes, some tens of nanoseconds beside four microseconds for a
//     publication, and no memory a job. Rejected: shares of heap groups (a group is
//     a schedule: "every minute" would be one producer's).
//   - Copies are held one by one, in 32 bytes each: of five producers each has one of
//     four in five slots, and nothing comes of nearly all. They are items of the outbox,
//     and count among what their job has unsettled, from when they are our duty; those
//     of late slots count at once, since a range has to wait for them. (As items from
//     the start, five producers on four cores published half of what one did.)
//     Rejected: keeping only the times, and asking the board again when a producer
//     dies (the board would have to walk backwards, and to remember what was judged
//     how).
//   - All copies of a dead producer's share are published by all that hold them.
//     Rejected: one after the other by rank, which makes the last one's wait, and
//     so the lateness, grow with the ranks, to save four copies once.
//   - A job that cannot be published is tried one slot at a time, with backoff,
//     until one gets through. Its other slots stay on the board meanwhile, so that it
//     takes no room from other jobs, however many are refused and for how long. Marks
//     that are made without it are announced with its name, and not claimed.
//     Rejected: a backoff for each slot, which had one refused job cost hundreds of
//     publications a second; a bound on what all jobs have waiting, which some that
//     are refused fill for good.
//   - Retries have no end. Publishing is the one thing that must happen, and a
//     slot that is too old by then is for the worker to record.
//   - A stop flushes nothing: it is as good as a kill, so that the kill is tested
//     by every test that stops.
//
// Known limits: a slot whose acknowledgement was lost just before a long outage
// of a job with more than a thousand missed slots may be counted in the range of
// missed ones although it ran; its own record tells.
package producer
