// Package alert delivers alerts: it tells a webhook or a NATS subject of slots that
// failed, expired or were missed.
//
// Whoever writes such an outcome publishes an alert into the stream of events before
// it acks the slot's message (package consumer), if the job wants one. From there one
// of the workers gets it, of whatever job or queue, and delivers it: so a slot that no
// worker of its job has ever seen is told of as well. What could not be delivered
// comes again, later each time, for as long as events are kept.
//
// An alert is delivered at least once: a worker that dies after the delivery and
// before its ack has another one deliver it again. The slot's ID is its idempotency
// key, as with actions.
//
// # Who may send what where
//
// The targets stand in the registry, so who may write that says where alerts go. So
// that this is all that it says, an alert sends nothing but the event; names no
// secrets but those that were made for alerts, the environment variables
// CRONCE_ALERT_*, no files and no other variable; does not follow redirects; and
// publishes on no subject of the server's or of this namespace. The target is looked
// up when the alert is delivered, not taken from the event: who may publish events,
// which every worker may, does not choose it.
//
// # Decisions
//
// A target that hangs or fails delays no other target. A node delivers to one target 16
// alerts at a time at most, and leaves a target that fails alone, for up to a minute;
// then one delivery tries it. An alert that finds its target so is given back to the
// broker, which keeps it, and never waits in the process. Rejected: one consumer for each
// target (targets change with each edit of a job, and their URLs may be secrets).
//
// The node that delivers must have the variables: one that has not gives the alert
// back, for another. Which nodes have them is not known to anybody; it is said in the
// log.
//
// Core NATS knows no receipt. A subject that nobody listens to is tried again; with
// somebody there the message counts as delivered, unless an answer comes within two
// seconds and says that it was not stored (a stream listens, and refuses). Rejected:
// to want an answer, which a plain subscriber never gives.
//
// Events of the kind alert that are no alerts (a slot was reopened) are acked.
//
// # Known limit
//
// Somebody who purges the alerts of one job by hand can make the server forget those of
// others that wait for their next try (integration/facts, 20): if nothing older that was
// delivered is among the events that are kept. It is not known of an alert whether it
// was delivered, so none is told again by itself. Rejected: an event for each delivery,
// from which that would be known (twice the messages, and somebody to look through them,
// for what only a purge makes necessary; take on_failure out of the job, and what waits
// is dropped).
package alert
