// Package execaction runs a command as the handler of a job.
//
// The command is started without a shell. Its standard input is the payload. Environment
// variables describe its slot, and TRACEPARENT and TRACESTATE its trace, if it has one. The
// exit status is the outcome of the attempt: 0 means succeeded, 65 (EX_DATAERR) failed for
// good, and 75 (EX_TEMPFAIL) and all others are retried. The command runs under a guard: its
// whole process group has ended when the handler returns, and before the lease of the worker
// expires.
//
// The command gets the environment of the worker without the variables that may hold the
// worker's login, unless its job asks for them. Variables of the action are added, and replace
// those of the same names. Their values never appear in errors or logs.
//
// A worker that runs as root can run a command as another user, with that user's groups and
// home directory. The guard changes the user between fork and exec.
//
// If the guard ended the command, its exit status does not count: a command that exits with
// 0 after TERM has not finished its work.
package execaction
