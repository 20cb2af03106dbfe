// Package alert delivers alerts: it sends a webhook or a NATS message about a slot that failed,
// expired, was missed, was late or succeeded, or whose success ended the trouble of its job. A slot
// that fails, expires, is missed or is late brings its job into trouble, until the next success. The
// package also calls the URL that a job names as its heartbeat, after each success of the job.
//
// A worker that writes such an outcome publishes an alert to the event stream before it acks
// the message of the slot (package consumer), if the job asks for alerts. One consumer hands
// the alerts to all workers of the namespace, whatever their jobs and queues are. So an
// alert is delivered even if no worker of its job is running. If a delivery fails, the alert
// is redelivered, with a growing delay, for as long as events are kept.
//
// A producer publishes the alert about a late slot (package sweep). A heartbeat that is ten
// minutes old is dropped, because it would say that the job succeeds now.
//
// An alert is delivered at least once. If a worker dies between delivery and ack, another worker
// delivers the alert again. The slot ID is the idempotency key, as with actions. One slot can
// have several alerts, so the key of a late, recovered or succeeded alert or of a heartbeat ends
// with its kind.
//
// The body is the event as JSON, or what package alertbody writes: for a service, or by the
// job's template.
//
// # Order
//
// Alerts of one job have no order: one that is retried is delivered after a later one. This does
// harm only with PagerDuty, where a failure that is delivered after the recovery opens an incident
// that nothing resolves. Such an alert is dropped (isOver).
//
// # Permissions
//
// The targets are stored in the registry, so write access to the registry decides where
// alerts go. To limit what that access is worth, an alert
//
//   - contains the event and nothing else, in the form that a template of the job gives it;
//   - can use only the environment variables CRONCE_ALERT_* as secrets, and no files;
//   - does not follow redirects;
//   - is not published to subjects of the server or of this namespace.
//
// The worker looks the target up in the registry when it delivers. The event does not name
// it, because every worker may publish events.
//
// # Slow targets
//
// A target that hangs or fails does not delay other targets. A node delivers at most 16
// alerts at a time to one target. After a failure it leaves the target alone for up to a
// minute, then tries one delivery. An alert whose target is busy or failing goes back to the
// broker; it never waits in the process.
//
// The delivering node needs the environment variables that the target names. A node without
// them returns the alert to the broker for another node, and logs that.
//
// # NATS subjects
//
// Core NATS does not acknowledge messages. If the subject has no subscriber, the delivery is retried.
// With a subscriber the delivery counts as a success, unless a stream answers within two seconds
// that it did not store the message.
//
// Some events of kind alert ask for no delivery, for example the event that a slot was reopened.
// They are only acked.
//
// # Known limit
//
// If an operator purges the alerts of one job by hand, the server can lose alerts of other
// jobs that wait for a retry (integration/facts, 20). docs/decisions/0041 says why this is
// accepted.
package alert
