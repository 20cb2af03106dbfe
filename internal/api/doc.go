// Package api makes each node a NATS micro service: "nats micro ls", "info" and
// "stats" show the fleet, and the orders of package client are endpoints with JSON
// schemas, so that any NATS client can do what the command line does. Both call the
// same functions.
//
// layout.ServiceName is the name of the service. Every node describes itself on
// NAMESPACE.api.node.NODE. A request on NAMESPACE.api.job.*, NAMESPACE.api.slot.* or
// NAMESPACE.api.node.ls is answered by any one of the nodes that offer the orders. (No node has
// the name "ls", since the name of a node has four parts.)
//
// # Decisions
//
//   - A node acts with its own login for every client that may publish on an endpoint's
//     subject. So a node offers the orders only if its own login has the permissions of an
//     operator; it asks the server for them ($SYS.REQ.USER.INFO). Then a request never
//     reaches a node that may not carry it out, and no caller can do more than the
//     administrator has allowed it and the node. Rejected: offering everything and
//     answering "not permitted", since any one node answers; and a flag, which would be
//     wrong as soon as permissions change.
//   - Each incarnation is a service of its own, so that the answers to PING list the
//     incarnations that live.
//   - Requests are read strictly: a misspelt member is an error and does not select the
//     default.
//   - The request names its author ("by"), because the server does not identify a caller
//     to a service. The name is information, not proof.
//   - A listing is answered in pages of one message, so that any client that can send a
//     request can list. Rejected: many messages that end with an empty one, for which a
//     client needs a subscription, their order and a way to notice a loss; and a cursor that
//     the node keeps, since any node may answer the request for the next page. So each page
//     reads the broker anew, and keeps no more rows than fit into the answer.
//   - A long operation ends when the time of its request is over, and returns its progress.
//     The same request again continues, as every operation of package client does.
package api
