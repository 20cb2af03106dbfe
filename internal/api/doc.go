// Package api makes each node a NATS micro service: "nats micro ls", "info" and
// "stats" show the fleet, and the orders of package control are endpoints with JSON
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
//   - A node acts with its own login, and whoever may publish to an order's subject
//     has the node do it. So a node offers orders only if its login has the rights of
//     an operator itself, which it asks the server for ($SYS.REQ.USER.INFO): an order
//     never finds a node that may not carry it out, and no login becomes more than
//     what the administrator gave to its node and to its caller. Rejected: offering
//     everything and answering "not permitted", since any one node answers; and a
//     flag, which would be wrong as soon as permissions change.
//   - Each incarnation is a service of its own, since its name is what the answer of
//     PING is for.
//   - Requests are read strictly: a member that is misspelt is an error, not an order
//     for the default.
//   - Who gives an order is what the request says ("by"): the server does not tell a
//     service who its caller is. It is for people to read, and no proof.
//   - A listing is answered in pages, each one message, so that any client that can
//     ask can list. Rejected: many messages that end with an empty one, for which a
//     client needs a subscription, an order and a way to tell a loss; and a cursor that
//     the node keeps, since the next page is answered by any node. So each page reads
//     the broker anew, and keeps no more rows than it may answer with.
//   - What takes long ends with its request's time and says how far it came; the same
//     again goes on. That is what every order of package control promises anyway.
package api
