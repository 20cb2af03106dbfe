package httpaction

import (
	"context"
	"errors"
	"net/http/httptrace"
	"sync/atomic"
)

// errBroken stands for the repetition of a request that was not made, and for an end
// of the connection in place of an answer.
var errBroken = errors.New("the connection broke before there was an answer")

// once lets the transport send a request at most once. The transport asks for a
// connection before each try. When it does so after it began to write, it means
// to repeat a request of which the service may have seen all: ctx ends then, and
// should a connection be there before that is noticed, it is closed unused. One
// that broke before anything was written may be replaced.
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
