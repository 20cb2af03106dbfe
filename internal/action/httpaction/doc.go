// Package httpaction sends an HTTP request as the handler of a job.
//
// One attempt is one request with the payload as its body. 2xx means succeeded; 400, 410 and
// 422 failed for good. Everything else is retried, including connections that fail or break. If
// the service sends Retry-After, the retry waits that long, an hour at most.
//
// A request is sent once. net/http repeats a request if a kept connection breaks and the
// request has an Idempotency-Key, as all of these have. The service would see two requests
// in one attempt. See once.
//
// Connections are shared by all jobs of the process, and kept idle for less than five
// seconds. Common servers close idle connections after that time, and a request that is sent
// while the server closes the connection fails. It is retried after a second or so. A job with a
// single attempt uses a new connection.
//
// HTTP/1.1 only: HTTP/2 saves nothing with one request at a time per service, and its
// transport repeats requests by rules of its own.
//
// Redirects are not followed. Most of them turn a POST into a GET without its payload, and
// would send the headers, with secrets, to a host that the job does not name. The error
// names the target. The attempt is retried, because services redirect while they are being moved.
//
// The answer must be complete. A service may send its status first and do the work while it
// writes. If it breaks off after a 200, the result is unknown, and the idempotency key makes
// a retry safe. Only the first 1 MiB of an answer is read: for a longer one the status
// decides and the connection is closed.
//
// Answers are not decompressed, so an answer costs what is sent.
//
// # Secrets
//
// Values from the environment are read once. Values from files are read at each request, so
// that a file can be replaced while the process runs. These values, and the password and the
// query of a URL, are removed from recorded answers and from errors, in the forms that
// [action.Secret] knows. URLs are shown without user, password and query.
package httpaction
