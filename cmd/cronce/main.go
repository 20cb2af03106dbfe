// Command cronce runs scheduled jobs once, on any number of machines, without a
// leader. See "cronce --help".
package main

import (
	"context"
	"os"
)

func main() {
	ctx := untilSignal(context.Background(), os.Exit)
	os.Exit(execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
