// Package ready asks services whether they can take work, and tells the workers
// of a queue when to take slots: not while a service that one of the queue's jobs
// needs says no.
//
// # Decisions
//
// A queue waits for all services of its jobs, since a worker cannot choose which
// job's slot it is given: one that it takes and cannot run costs an attempt. A job
// that should not wait for another one's service belongs into a queue of its own.
//
// A service is asked with GET, without the job's headers, which may be secret and
// meant for another address. 2xx means yes; a redirect, any other answer and none
// within two seconds mean no. Until the first answer it means no as well.
//
// One no is enough to stop, and after it two yes in a row are needed to go on: to
// stop wrongly costs a second in which another node may take the slot, to go on
// wrongly costs attempts.
//
// It is asked every second, the ready one too: this is how long slots may still be
// taken for a service that went away. Running slots are left alone.
package ready
