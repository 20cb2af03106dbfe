// Package control holds what a person does to a namespace while the fleet works:
// bring jobs in and take them out, stop and resume them, and look at what is
// there. One noun a file. The command line uses it, and so may anything else that
// gives an operator's orders, so that all of them mean the same.
//
// # What an operation promises
//
// Every change is one won write (see package kv) of one entry, at the revision
// that the operation read and judged. So of two people who change one thing at
// once the second gets a [*ConflictError], which names the first, and has changed
// nothing. Nothing is repeated over somebody else's change unseen.
//
// An operation on several things is not one write. Everything is read and judged
// before the first write, so that what is wrong is known before anything has
// changed; after that, a crash leaves each thing either as it was or as it was to
// be, and the same operation again does what is left.
//
// A write that was not answered when the context ended is job.ErrUnknown. The
// same operation again settles it: it finds what it wants to write, or writes it.
//
// # Slots
//
// A slot's record belongs to its owner while that may live: Cancel asks the owner
// of a running slot (see job.CancelRequest), again and again, until the record is
// final, and writes it itself only once the owner is proved dead as a worker would
// prove it. Reopen tells first, then wins the record, then offers the message:
// each order leaves something that the same again finishes, and no other does.
// Explain is made of what is there anyway (record, message, kept events, plans,
// nodes): no trail is kept for it.
//
// # Triggers and backfills
//
// These change no entry: they publish slots, whose IDs make any number of copies
// one run. What they read first (a record, a timer, what waits) spares messages and
// tells the operator what there is; that nothing runs twice does not depend on it.
// So they can be repeated after anything. Of two orders of one key the first
// stands, but for its queue: what waits on one that is no longer the job's is moved
// by the next order of that key.
//
// # Listings
//
// ListJobs, ListSlots and ListNodes give the rows that the command line prints and
// the endpoints of package api send, which is why those have names for JSON here.
// A listing can go on after the place of a row (see [Place]): places are made of the
// rows themselves, so nothing is remembered between two calls, and any node goes on
// where another stopped.
//
// # Decisions
//
// No operation prints, asks or logs: it returns values, and what to say of them
// is the caller's. Time is the broker's, asked once for each operation: the
// operator's laptop is on nobody's clock.
//
// Apply reads each job at the registry's leader, one request a job. A list in one
// pass would be faster, and is answered by any replica: right after an apply the
// next one would judge by what stood there before, and end in a conflict with
// itself.
//
// Apply takes a job over only if it changes it. A file that says what stands there
// already is no edit, and its writer may not know that files would be locked out.
//
// Prune removes what operators brought and hold and the file has not. A label for the jobs
// of each file, so that two files can be pruned in one namespace, was left out:
// forgotten once, it removes the other file's jobs all the same; namespaces part
// applications. What a file or code brought is never pruned, though an operator
// edited it since: nobody who prunes has it in mind, and it would come back with
// the next start of a node.
//
// A conflict is not retried by merging: two people who both changed a schedule
// have something to talk about. The revision that a caller has seen may be given,
// which widens the check from the moment of the write to the time that a person
// takes to think.
package control
