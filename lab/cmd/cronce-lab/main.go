// Command cronce-lab tests and measures fleets, and checks clients in other languages. See "cronce-lab --help".
package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/natsconn/embed"
)

func main() {
	ctx := base.UntilSignal(context.Background(), os.Exit)
	a := &base.App{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Now: time.Now, Local: embed.DefaultListen}
	os.Exit(execute(ctx, a, os.Args[1:]))
}

// execute runs one command line and returns its exit status.
func execute(ctx context.Context, a *base.App, args []string) int {
	return base.Execute(ctx, a, newRootCommand(a), args)
}

const rootLong = `Cronce-lab tests and measures what cronce promises. Torture breaks a fleet in every way
and checks that the promise holds. Bench measures a fleet on your server. Conformance
checks a client of the wire format that you wrote in another language.

Exit status: 0 done, 1 failed (the server or the environment), 2 wrong usage or
configuration, 3 a check found something, 130 after a second TERM or Ctrl-C.`

func newRootCommand(a *base.App) *cobra.Command {
	root := base.NewRoot(a, "cronce-lab", "Test and measure fleets of cronce, and clients in other languages", rootLong)
	root.AddCommand(
		newBenchCommand(a),
		newConformanceCommand(a),
		newTortureCommand(a),
	)
	base.GuardLists(root)
	return root
}
