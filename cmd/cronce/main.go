// Command cronce runs scheduled jobs once, on any number of machines, without a
// leader. See "cronce --help".
package main

import (
	"context"
	"io"
	"log"
	"os"

	"github.com/cronce-io/cronce/internal/action/guard"
)

func main() {
	// This binary is also the guard of its own exec actions.
	if handled, code := guard.Dispatch(os.Args[1:]); handled {
		os.Exit(code)
	}
	// net/http tells it, word for word, when a service says something unasked.
	log.SetOutput(io.Discard)
	ctx := untilSignal(context.Background(), os.Exit)
	os.Exit(execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
