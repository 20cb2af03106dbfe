// Package consumer turns slot messages into outcomes: it takes them from one
// queue, claims, runs, completes and settles.
//
// Programs get one from package cronce, or from "cronce run". [New] is for those that
// bring a broker of their own: [Config] says what it needs of one. What a handler
// may rely on, and what ends its context, is in the documentation of package cronce.
//
// # Design: the way of a slot
//
//	pull    asks for as many messages as there will be free places for
//	limiter bounds the handlers of a queue that run at once in the process
//	held    marks each as in progress, every third of a lease
//	serve   reads the message and enters the slot in the table of obligations
//	task    asks core.Decide what to do, and does it: the claim is a write that has
//	        to be won
//	attempt runs the handler under a context that ends with the node's lease, and
//	        has its end written at the revision of its claim
//	crew    has the goroutines
//	lock    takes and leaves a place, for jobs that guard against overlap
//	follow  sends what follows from an outcome
//	trace   makes a span of each claim, run and completion, where that is wanted
//	failed  makes a panic in any of this that slot's failure
//	settle  answers the broker: ack, later, drop, or nothing at all
//
// # Design: who waits
//
// Nobody waits for the answer to a claim or a completion: whoever hands the write
// over (Ledger.Send) gives the task away with it (the verdict is pending), and its
// answer goes on. Of most slots, which are delivered for the first time, what the
// claim needs is at hand: then it is handed over by whoever delivers the message
// (task.begin). Its answer has the slot a goroutine, which runs the handler and hands
// over the completion; and whoever is told of that acks, if nothing else is left to do
// that could block (task.isBrief). With a goroutine for each slot that was parked and
// woken twice, a slot took a fifth more CPU.
//
// What cannot be done without waiting (a read, a lock, a place that comes before the
// claim, a write that did not win at once, anything logged) is done on a goroutine of
// the crew. There are not two ways of a slot: begin does nothing unless the step is an
// ordinary start, by core.Decide like any other, and hands it over as all others do.
//
// # Design: the invariants that live here
//
// (3) No handler starts without a won write. A read only suggests a revision to
// write at; the answer to the write decides. An answer that does not come means
// neither yes nor no: the write is repeated until it is answered or the
// incarnation ends, and then nothing was started. A handler is started by what a won
// write's answer leads to (task.written), and from nowhere else.
//
// (4) No handler's context outlives its node's lease: it is a child of the node's, and
// its Err compares the clock with the trust that is left, so that a starved process that
// has not noticed yet hears of it when it asks. The lease is checked once more between
// the won claim and the start, because the process may have slept there.
//
// (5) A worker that lost its claim cannot complete: the completion names the
// claim's revision, and whoever took over has moved it.
//
// (6) Ack only after the record is durable, and only from who wrote it or read it
// as final. An ack does not fence: the engine takes it from anybody who ever held
// the message, and it would take the message from under the new owner. A worker
// that lost its claim says nothing.
//
// # Design: ended from outside
//
// An operator, or a newer slot, ends a running slot by asking its owner
// (Table.Cancel): the handler's context ends with that cause, and the owner writes
// the outcome. Nobody else may: a record that others rewrite refuses its owner's
// completion, and what the handler has done would be lost from sight. The request
// names the claim, so that one that was long on its way ends no later attempt. A
// handler that returns nil has succeeded, asked or not: its effect has landed, and
// to say otherwise would have somebody make it again.
//
// # Design: overlap
//
// A slot of a guarded job (job.Job.Guarded) takes a place in its job's lock before
// its first claim and leaves it after its outcome is written: core.Lock has the rules,
// lock.go asks and stores. The order is what makes it hold. The place is a won
// write before the claim, so that no two slots run that may not; only an outcome
// in the ledger frees it, so that a crash in between leaves a place taken by a slot
// that somebody resumes, or by one that has ended, which the next who asks sees.
// Nothing needs a reset by hand.
//
// A short slot, under the policy that leaves out who comes meanwhile, is not taken out
// of its lock: the next one, which nearly always comes when it has ended, takes its place
// with the write with which it enters anyway. That is a write less for each slot of most
// jobs. Who wrote its outcome knows that it has ended, as long as the lock stands at the
// revision that it knows: a slot that is reopened comes in again with a write. All others
// ask the ledger, as they do about the slots of the dead. A slot that has run for a second
// leaves, and so does one behind which somebody is known to wait: they are told at once.
// Rejected: leaving so under every policy (where slots wait for each other, that is
// what a lock is for, and a hint that is lost may cost a second).
//
// A place in a lock that nothing is known to be in the way of is taken without a
// goroutine, as a claim is made: the answer to the lock's write hands over the claim
// (task.enterAtOnce). A lock that this process has not seen yet is read, or taken for
// none: as the last one turned out. So jobs that are new cost no read, and a worker that
// starts has a few writes refused. With a goroutine for each and a read of each unknown
// lock a slot cost 1.3 to 1.4 times as much, of the worker and of the broker.
//
// A slot that has to wait is kept in hand, marked as in progress, and takes no
// place from handlers (lots.go). Who leaves a lock gives the place to the first in
// the line and tells it on core NATS; should that be lost, it looks by itself.
// Rejected: giving it back with a delay (a job's slots would follow one another as
// slowly as that delay); running the next slot by whoever leaves the lock (its
// message is in another's hand, with its payload and its retries).
//
// # Design: what follows
//
// Jobs that come after the slot's, when it has succeeded, and an alert, when it has
// not. Their messages are on the broker before its own is acked: a crash between the outcome and the ack brings that
// again, whoever gets it finds the outcome and sends all once more, and the stream
// folds it; the ledger, should that have forgotten.
//
// A job after several is published by whoever finds that all have succeeded. Each
// looks for the others' records after its own write, on a server that has seen
// that write (Ledger.Beside). All writes have one order, so of two that end at once the
// later one's server has both. Rejected: a read of each record at the leader (a
// leader that was deposed a moment ago would hide them from each other), and a record
// of the chain itself, with its own revisions (a write more for what can be derived).
//
// Whether anything follows is known from this process's copy of the registry,
// without a question; of a job that this copy has not heard of yet the sweep finds
// the turns that it missed (internal/fleet/sweep).
//
// # Design: decisions
//
// A fresh slot is claimed without a read: its record does not exist in all but
// the rarest cases, and the write tells. Rejected: reading first (a request more
// per slot, for an answer that may be stale anyway).
//
// A redelivered message whose owner lives is given back for as long as the owner
// would have to be silent to be proved dead, not left to AckWait: AckWait counts
// from the owner's last mark, and a whole second one would pass before the slot
// is looked at again. The owner is asked before that whether it holds the claim
// (Table.Holds). If it does not, no handler will ever start by that claim, and the slot is
// taken over: a write at the revision that was asked about. The owner may have claimed
// the slot again since, at that same revision, and then one of the two writes is refused.
// So it does not matter how long ago the answer was given. No answer says nothing, until
// the slot is past its horizon: then it ends (invariant 10).
//
// The end of an attempt whose handler returned in time is written until it is answered,
// also when the lease has ended meanwhile. The revision of the claim decides: it stands
// until another worker has taken the slot over. If the ledger itself has lost the claim,
// after a purge or a restore, the end is written over what stands there, unless that is
// an outcome or a later claim (job.Record.Outlasts).
//
// A place is for a handler: a slot acquires it before its handler starts, and releases it
// when the handler has returned, before its outcome is on the broker's disk. On a
// broker that syncs every write this is half of a short slot's time. How many
// outcomes may wait to be recorded is bounded. Places are the process's: a handler that
// outlives its incarnation keeps its place.
//
// # Design: claiming ahead
//
// The worker asks for as many messages as places are free, and for as many more as short
// handlers returned in the last 50 ms, if that is at least one for each place. These are
// claimed ahead of their places, and wait for them without a goroutine: whoever releases
// a place runs the next claimed slot on the goroutine that it has. With handlers that
// take longer nothing is asked for ahead, so that no slot waits here while another worker
// has a place for it. What has waited for half a second is given back: a claim is
// released as an attempt that never began. A slot of one attempt, one of a job with a
// deadline and one that has had its turn in a lock acquire their place before the claim.
// docs/decisions/0001-claim-ahead.md has what this is worth.
//
// Half of what may be asked for is asked for at once, or all when nothing is: a
// steady trickle costs a request for every few slots, not one each.
//
// The pull protocol is spoken by us (kv.Source), with inboxes that outlive their
// requests. Rejected: the client library's Fetch, which forgets a request with the
// status that ends it, and with it the message that comes right after, until
// AckWait runs out; and its Consume, which fetches ahead whatever handlers do.
//
// A request stands for a second while slots come, and for as long as none has come,
// up to a fifth of a lease, on an idle queue. A frozen worker (SIGSTOP, a lost
// machine) swallows what is delivered on the request that stands, until AckWait
// brings it to others; nothing tells the broker before: heartbeats of a request
// come from the server, and say nothing about the worker. So the length of a
// request is what a freeze can cost, and how often it is made is what an idle fleet
// costs: with four seconds at the default lease, a message in four seconds for each
// queue and stream. That a queue was quiet for as long as the request stands is why
// one slot is about what is at stake; the free places bound it in any case.
// Requests overlap a little, so that a queue always knows of its workers: on a
// queue with priorities a gap would hand slots to those who stand by.
//
// A worker that stops lets a request of a second run out, and gives back what still
// comes; a longer one it takes back by closing its inbox. That is quicker, but a
// message may be on its way to it just then; nothing comes where requests are long.
//
// The first mark of a message in hand is not sent at once. It matters only when the
// broker restarts or changes leaders, which then counts AckWait from the age of the
// message: one that is young comes again no sooner than a lease after it was
// published, and is marked before; one that is old is marked after a quarter of a
// second. In between a second delivery meets the record of the first: it costs a
// read, not a second start.
//
// Priorities (run --priority) are the broker's: of the workers that have asked, the
// lowest is served. One that has no place free does not ask, and its slots go to
// the next.
//
// # Design: more decisions
//
// A worker that knows that a slot would fail takes none (Config.Ready): a claim
// costs an attempt. It is asked before messages are asked for, and again before a
// claim: what still comes on a request that stands is given back at once, so that it
// keeps its place before newer messages. What runs, and what only has to be recorded,
// goes on.
//
// Attempts are counted by claims, in the record, and the consumer's MaxDeliver is
// unlimited: deliveries also happen for reasons of the broker's, and a message
// that used them up would stay in the stream without anybody to end its slot.
//
// A handler that does not return keeps its place and its entry in the table, and
// so holds its slot, until its node falls silent. Go has no way to end it.
// Rejected: giving the slot up in its name, which is the overlap that the lease
// exists to prevent.
package consumer
