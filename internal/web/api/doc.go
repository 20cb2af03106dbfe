// Package api is the HTTP API: every order and every question of package client as an
// operation below /api/v1. It parses, calls and renders; it decides nothing.
//
//   - operation.go: what an operation is. Its input is a struct with tags, from which
//     params.go reads requests strictly and openapi.go generates the document.
//   - jobs.go, runs.go, slots.go, fleet.go, events.go: the operations, by noun.
//   - api.go: the handler. It routes, names the user and turns errors into problem documents.
//
// # Decisions
//
//   - If the broker does not answer in time, a question gets 503 and an order 504: the order may
//     have been carried out, and sending it again settles it. For a trigger, that takes an
//     Idempotency-Key: without one, each request is another run.
//   - A PUT needs If-Match or If-None-Match, since two operators that edit one job would
//     otherwise overwrite each other unseen.
//   - Unknown parameters and members are errors. A misspelt filter must not select everything.
//   - Links are relative, so that they work below any path.
package api
