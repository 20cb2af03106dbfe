//go:build unix

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

func TestReloadWorksOnTheQueuesOfTheNewFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, marks := filepath.Join(dir, "jobs.yaml"), filepath.Join(dir, "marks")
	write := func(queue string) {
		t.Helper()
		text := "version: 1\njobs:\n  - {name: tick, queue: " + queue + ", schedule: '* * * * * *', action: {exec: [/bin/sh, -c, 'echo $CRONCE_QUEUE >>" + marks + "']}}\n"
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ran := func(queue string) {
		t.Helper()
		natstest.Eventually(t, "a slot of the queue "+queue, func() bool {
			text, _ := os.ReadFile(marks) // it is not there before the first slot
			return strings.Contains(string(text), queue+"\n")
		})
	}
	write("first")
	node := command(t, "run", "-f", file, "--server", natstest.Run(t).ClientURL(), "--concurrency", "4", "--concurrency", "second=2")
	node.Stderr = io.Discard
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	ran("first")
	write("second")
	send(t, node, syscall.SIGHUP)
	ran("second")
	send(t, node, syscall.SIGTERM)
	if err := node.Wait(); err != nil {
		t.Error(err)
	}
}
