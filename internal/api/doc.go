// Package api makes each node a NATS micro service: "nats micro ls", "info" and
// "stats" show the fleet, and the orders of package client are endpoints with JSON
// schemas, so that any NATS client can do what the command line does. Both call the
// same functions.
//
// The service is named as kv.ServiceName has it. Every node answers for itself under
// NAMESPACE.api.node.NODE; the orders, NAMESPACE.api.job.*, NAMESPACE.api.slot.* and
// NAMESPACE.api.node.ls (no node is called "ls": its name has four parts), are
// answered by any one node that offers them.
//
// # Decisions
//
//   - A node acts with its own login for every client that may publish to an endpoint's
//     subject. So a node offers these endpoints only if its own login has an operator's
//     permissions, which it asks the server for ($SYS.REQ.USER.INFO). A request then
//     never reaches a node that may not carry it out, and no login gets more than the
//     administrator gave to its node and to its caller. Rejected: offering
//     everything and answering "not permitted", since any one node answers; and a
//     flag, which would be wrong as soon as permissions change.
//   - Each incarnation is a service of its own, since its name is what the answer of
//     PING is for.
//   - Requests are read strictly: a misspelt member is an error and does not select the
//     default.
//   - The request names its author ("by"), because the server does not identify a caller
//     to a service. The name is information, not proof.
//   - A listing is answered in pages, each one message, so that any client that can
//     ask can list. Rejected: many messages that end with an empty one, for which a
//     client needs a subscription, an order and a way to tell a loss; and a cursor that
//     the node keeps, since the next page is answered by any node. So each page reads
//     the broker anew, and keeps no more rows than it may answer with.
//   - A long operation ends when its request's time is over, and returns its progress. The
//     same request again continues, as every operation of package client does.
package api
