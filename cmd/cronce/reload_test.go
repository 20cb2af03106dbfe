package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/cmd/cronce/base"
)

// Parsing a large file takes seconds, and standard input may never end.
func TestReadingStandardInputEndsWithTheContext(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"check -", "next -f -", "job apply -f -", "job trigger report --payload -", "verify --against -", "verify --against log -f -",
		"import crontab -", "import k8s -", "import systemd -",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			never, hold := io.Pipe()
			defer hold.Close()
			ctx, cancel := context.WithCancel(t.Context())
			a := &base.App{Stdin: never, Stdout: io.Discard, Stderr: io.Discard, Getenv: func(string) string { return "" }, Now: time.Now}
			ended := make(chan int, 1)
			go func() { ended <- execute(ctx, a, strings.Fields(args)) }()
			cancel()
			select {
			case status := <-ended:
				if status != base.ExitFailed {
					t.Errorf("status %d, want %d", status, base.ExitFailed)
				}
			case <-time.After(5 * time.Minute):
				t.Fatal("the command still waits for its standard input")
			}
		})
	}
}
