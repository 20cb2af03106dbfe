// Command cronce runs scheduled jobs once, on any number of machines, without a
// leader. See "cronce --help".
package main

import (
	"context"
	"io"
	"log"
	"os"
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
	ctx := base.UntilSignal(context.Background(), os.Exit)
	a := &base.App{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Now: time.Now, Local: embed.DefaultListen}
	os.Exit(execute(ctx, a, os.Args[1:]))
}
