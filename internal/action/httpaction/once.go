package httpaction

import (
	"context"
	"errors"
	"net/http/httptrace"
	"sync/atomic"
)

// errBroken replaces the error of a repetition that was prevented, and of a connection that
// ended without an answer.
var errBroken = errors.New("the connection broke before there was an answer")

// once makes the transport send a request at most once. The transport asks for a connection
// before each try. If it asks again after it began to write, it is about to repeat a request
// that the service may have seen. once then ends ctx, and closes a connection that the transport
// gets all the same. If a connection broke before anything was written, the transport may use
// another one.
//
// It needs connections that carry one request at a time: HTTP/1.1.
func once(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	var written, spent atomic.Bool
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders: func() { written.Store(true) },
		GetConn: func(string) {
			if written.Load() {
				spent.Store(true)
				cancel(errBroken)
			}
		},
		GotConn: func(info httptrace.GotConnInfo) {
			if spent.Load() {
				info.Conn.Close()
			}
		},
	})
}
