package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/cronce-io/cronce/cmd/cronce/base"
)

// sameSignal is how soon after the first signal another one counts as the same.
const sameSignal = 100 * time.Millisecond

// untilSignal returns a context that ends with the first TERM or Ctrl-C: the command then
// shuts down in order. A second signal exits at once. A signal within 100 ms of the first
// is ignored, because timeout(1) and some supervisors signal the process and then its
// group.
//
// SIGPIPE is caught and not ignored. A write to a closed pipe then fails with EPIPE and
// ends the command cleanly. Programs that exec actions start would inherit an ignored
// signal; a caught one is reset to the default.
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
