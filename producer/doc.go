// Package producer computes the slots of every job and publishes them when they fall due. Any
// number of producers run side by side without a leader. The message ID of a slot depends on the
// job and the instant only, so if several producers publish a slot, the stream keeps one message
// and drops the duplicates. If the stream has forgotten the message ID, the slot's record in the
// ledger prevents a second run. Producers that receive each other's announcements divide the
// jobs among themselves, so that usually only one of them publishes a slot.
//
// Programs use package cronce or "cronce run". [New] is for programs with a broker of their
// own: [Config] lists what it needs, [Stats] counts what it did.
//
// # Design
//
// One loop drives four parts:
//
//	registry events -> agenda -> outbox -> keeper -> stored watermark
//	                     due     acked    offered
//
// What each of them does:
//
//   - The agenda knows every job and returns the slots that are due. A line is a stretch of a
//     job's timeline. Where an edit changes the job's plan, or a pause begins or ends, one
//     line ends and the next begins. A group is all lines of one schedule with the same next
//     slot. The agenda's heap holds the groups.
//   - The outbox publishes the slots and repeats what fails until the stream acknowledges
//     it. A mark between its items says to which position the watermark may advance when all
//     items before the mark are done.
//   - The keeper writes the watermark (T, R, K). The watermark says that every slot that fell
//     due up to T, by the registry at revision R, is published. K is the newest timestamp in
//     that registry.
//   - The fleet is what this producer knows of the others. Five producers, the oldest, are
//     active. Each job has one owner among them, which publishes the job's slots. The other
//     active producers keep copies on standby until the owner announces that the slots are
//     stored. Producers that are not active rest.
//
// The loop's goroutine owns the agenda, the outbox and the fleet. They have no locks.
// Answers, registry events and announcements reach the loop over channels.
//
//	session.go  the loop: what is due, and how long to sleep
//	agenda.go   every job, and the position that the agenda has reached
//	line.go     lines, groups and the heap of groups
//	due.go      takes due slots off the agenda
//	suspend.go  keeps the slots of a job on the agenda while its publications fail
//	outbox.go   publishes, retries, and keeps the marks
//	answers.go  takes in the broker's answers
//	standby.go  keeps the copies of other producers' slots
//	fleet.go    which producers are active, and which one owns a job
//	announce.go sends and receives announcements
//	audit.go    checks what the others announce
//	keeper.go   moves the stored watermark
//
// # Invariants
//
//   - The watermark moves to T after every slot due up to T is acknowledged, and never back
//     (invariant 2). A mark is made only when nothing due at T is left on the agenda. If slots
//     of suspended jobs are left, the mark is partial: it is announced for the other jobs, and
//     never stored. When items return to the agenda, all marks are deleted.
//   - R is a revision at which no registry event was pending.
//   - The agenda returns a slot once, unless the outbox puts the slot back unacknowledged.
//   - A copy is dropped only if its owner announced T at or after the slot's due time, for
//     the same members, the same digest of the registry and the same definition.
//   - A wrong guess about which peers are alive changes how often a slot is published, and
//     nothing else. A silent owner loses its share after 250 ms plus the time that the broker
//     now takes to answer, a slow one after 2 s.
//   - Announcements are not trusted. They count only for nodes with a live record, and not
//     for slots that are not due yet. Audits check them: an active producer publishes one
//     announced slot of each peer every 15 to 30 s. A resting producer publishes one slot,
//     due 15 to 60 s ago, and reads the watermark once, every 30 s. If the stream did not
//     have the slot, the peers that should have published it do not count for 10 minutes, and
//     a warning names them. If a resting producer becomes active because of that, it publishes
//     what fell due in the last minute, whatever the watermark says.
//   - A slot that is returned more than plans.LateAfter (1 min) after its due time is late. The
//     job's catch-up policy decides about all its late slots together. Missed slots that follow
//     one another are one range. Ranges are published after what runs.
//   - A watermark that cannot be read stops no producer, and one that an operator moved back
//     restarts every producer from there.
//   - While another producer may know slots that this one does not (a definition of a newer
//     format, or newer time zone data), this one does not move the watermark.
//   - Retries have no end. A producer that stops flushes nothing, as if it were killed.
//
// Known limit: a range of missed slots may count a slot that ran, if a slot before it did not.
// Its own record is right.
//
// docs/protocol.md, section 8, has the rules for other languages. docs/decisions has the
// reasons and the rejected alternatives: 0003 (shares), 0010 (agenda), 0011 (watermark),
// 0012 (standby), 0013 (publishing), 0014 (audits), 0096 (ranges).
package producer
