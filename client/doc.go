// Package client orders runs, waits for their outcomes, changes jobs and answers every
// question about a namespace: from any Go program, with or without a scheduler in it.
//
//	nc, err := nats.Connect("nats://127.0.0.1:4222", nats.MaxReconnects(-1))
//	...
//	c, err := client.New(ctx, nc)
//	...
//	run, err := c.Trigger(ctx, "invoice", client.TriggerOptions{Key: "order-4711", Payload: order})
//	...
//	slot, err := run.Wait(ctx)
//	fmt.Println(slot.State, slot.Error, slot.Output, slot.Result)
//
// By default nats.go gives up after about two minutes without a server, and then every call
// fails: hence nats.MaxReconnects(-1).
//
// A program that runs a scheduler has a client already: (*cronce.Scheduler).Client. The
// command line and the NATS service are written on this package, so that an order means the
// same everywhere.
//
//   - Jobs: [Client.Jobs], [Client.Job], [Client.Next]; [Client.Apply], [Client.Pause],
//     [Client.Drain], [Client.Resume], [Client.Release], [Client.Remove]; the orders and their operators:
//     [Client.Orders].
//   - Runs: [Client.Trigger], [Client.TriggerMany], [Run.Wait], [Client.Backfill].
//   - Slots: [Client.Slots] iterates, [Client.ListSlots] returns a page; [Client.Last],
//     [Client.LastWritten], [Client.WrittenSince]; [Client.Slot], [Client.Expect], [Client.Wait],
//     [Client.Explain]; [Client.Retry], [Client.Cancel].
//   - Slots that run: [Client.Running] returns the progress and the output so far,
//     [Client.Tail] follows the output to the outcome. The result of a handler
//     (job.Run.SetResult) is in [SlotDetails].
//   - The fleet: [Client.Nodes], [Client.Doctor], [Client.Verify], [Client.Events]; what the
//     login may do: [Client.Rights].
//
// A slot is named by its ID, like "report:2026-11-21T07:00:00Z" or, if it was triggered,
// "report:@order-4711".
//
// # Errors
//
// Errors wrap the sentinels of package job. [job.ErrInvalid]: the order itself is wrong, and
// nothing was sent; or a stored value cannot be read. [job.ErrVersion]: a newer program has stored
// a value that this one cannot read. [job.ErrNotFound]: there is no such job or slot.
// [job.ErrConflict]: the job or slot was not changed. Either another writer was first, and a
// [*ConflictError] or [*SlotConflictError] names it, or the slot's state does not allow the order,
// and a [*SlotError] says why, or slots of a backfill are too old: see [*TooOldError].
// [job.ErrDenied]: the login may not do that. [job.ErrUnknown]: the context ended before the broker
// answered, so the order may have been carried out. Repeat it to settle that: every order can be
// repeated.
//
// While the broker cannot be reached, every method waits for it until its context ends. Only
// [Client.Rights] fails at once.
//
// # Jobs
//
// Each change of a job is one write at the revision that the operation has read (see
// package kv). If two operators change one job at the same time, the second gets a
// [*ConflictError], which names the first, and changes nothing.
//
// An operation on several jobs is several writes. It reads and checks everything before
// the first write. After a crash each job is either unchanged or as wanted, and the same
// operation does the rest.
//
// # Slots
//
// A slot's record belongs to its owner while the owner may be alive. [Client.Cancel] therefore
// asks the owner to end the slot. It writes the outcome itself only if the slot has no owner, or if
// the owner is proved dead. [Client.Retry] first publishes an event that announces the new start.
// Then it writes the record at the revision that it has read, and then it publishes the message.
// After a crash at any point, the same call does the rest.
//
// [Client.Trigger] and [Client.Backfill] only publish slots. Copies with one slot ID fold into
// one run, so both can be repeated at any time. They read first only to save messages and to
// inform the operator. Those reads do not decide whether a slot runs twice.
//
// # Listings
//
// A listing returns rows. The JSON of a row is the line that the command line prints with
// -o json. To continue a listing, pass the [Cursor] of the last row. A cursor is computed from
// the row alone, so the client keeps no state between two calls, and any program can continue.
//
// No method prints, prompts or logs. Times are the broker's. The clock of the program's machine
// stamps only two things: the declaration that a node is dead, and the event about an order if the
// broker does not answer any more.
package client
