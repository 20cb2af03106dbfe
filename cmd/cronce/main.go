// Command cronce runs scheduled jobs once, on any number of machines, without a
// leader. See "cronce --help".
package main

import (
	"context"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/action/guard"
	"github.com/cronce-io/cronce/internal/natsconn/embed"
)

func main() {
	// The binary also runs as the guard process of its exec actions.
	if handled, code := guard.Dispatch(os.Args[1:]); handled {
		os.Exit(code)
	}
	// net/http logs unsolicited responses of a service here, with their content.
	log.SetOutput(io.Discard)
	ctx := untilSignal(context.Background(), os.Exit)
	a := &base.App{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Now: time.Now, Local: embed.DefaultListen}
	os.Exit(execute(ctx, a, os.Args[1:]))
}

// sameSignal is how soon after the first signal another one is ignored.
const sameSignal = 100 * time.Millisecond

// untilSignal returns a context that ends with the first TERM or Ctrl-C: the command then
// shuts down gracefully. A second signal exits at once. A signal within sameSignal of the
// first is ignored, because timeout(1) and some supervisors signal the process and then its
// group.
//
// SIGPIPE is caught, so that a write to a closed pipe fails with EPIPE and the command ends
// cleanly. It is not ignored, because programs that exec actions start would inherit that; a
// caught signal is reset to the default.
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
				exit(base.ExitInterrupted)
			}
		}
	}()
	return ctx
}
