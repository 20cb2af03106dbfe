// Package execaction makes a job's handler out of a command.
//
// The command is started as it is, without a shell. It reads the payload from
// its standard input, and is told about its slot by environment variables, and in
// TRACEPARENT and TRACESTATE of the trace that it is part of, if it is traced. Its
// exit status is the outcome of the attempt: 0 succeeded; 65 (EX_DATAERR) failed
// for good; 75 (EX_TEMPFAIL) and anything else is retried. It runs under a
// guard, so that its whole process group is gone when the handler returns, and
// before the worker's lease is over.
//
// The command gets the worker's environment, but none of the variables that may hold the
// worker's login, unless its job asks for them.
//
// An exit status counts only if the command was left alone: one that exits with
// 0 because it was told to end has not done its work.
package execaction
