package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/cronce-io/cronce/cmd/cronce/base"
)

// sameSignal is how soon after the first a signal is taken for its echo.
const sameSignal = 100 * time.Millisecond

// untilSignal returns a context that ends with the first TERM or Ctrl-C, which
// asks for an orderly end. The second one does not wait for it; but one that comes
// within a tenth of a second is the same: timeout(1) and some supervisors signal
// the process and then its group.
//
// SIGPIPE is caught, not ignored: a write to a closed pipe then fails with EPIPE
// and ends the command cleanly, while the programs that exec actions start
// still get the default behaviour (an ignored signal would be inherited).
func untilSignal(parent context.Context, exit func(code int)) context.Context {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		for first := time.Now(); ; {
			<-signals
			if time.Since(first) > sameSignal {
				exit(base.ExitSecondSignal)
			}
		}
	}()
	return ctx
}
