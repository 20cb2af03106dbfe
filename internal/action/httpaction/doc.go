// Package httpaction makes a job's handler out of an HTTP request.
//
// One attempt is one request, with the payload as its body. 2xx succeeded; 400,
// 410 and 422 failed for good; everything else is retried, a connection that
// cannot be made or that breaks included, and no sooner than Retry-After says.
//
// # Decisions
//
// One request is sent once. net/http repeats a request on its own when a kept
// connection breaks and the request has an Idempotency-Key, which ours all have:
// the service might see two in one attempt, and two in a job that may start once.
// See once.
//
// Connections are kept, for all jobs of the process together, but idle for less
// than five seconds: that is when common servers close theirs, and a request that
// crosses the close fails. It is tried again in a second or so; a job that has one
// attempt only gets a connection of its own for it.
//
// HTTP/1.1 only. HTTP/2 would save nothing, with one request at a time to a
// service, and its transport repeats requests by rules of its own.
//
// Redirects are not followed. A POST comes out of most of them as a GET without
// its payload, and the headers, secrets among them, would go to a host that the
// file does not name. The error says where it leads to; it is retried, because
// services redirect while they are being moved.
//
// The answer has to be complete. A service may send its status first and do the
// work while it writes; when it breaks off after a 200, nobody knows what was
// done, and the idempotency key makes asking again safe. Of an answer that is
// longer than 1 MiB the rest is not waited for: its status decides, and its
// connection is closed.
//
// Nothing is decompressed: an answer costs what it weighs on the wire.
//
// # Secrets
//
// Values from the environment are read once, from files at each request, so that
// a file can be replaced under a running process. They, and the password and the
// query of a URL, are taken out of what the service answers before it is kept, since
// services echo requests, and out of errors, in the forms that [action.Secret] knows.
// URLs are shown without user, password and query.
package httpaction
