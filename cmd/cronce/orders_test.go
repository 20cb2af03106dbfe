//go:build unix

package main

import (
	"bufio"
	"strings"
	"syscall"
	"testing"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

func TestWatchOrdersPrintsThoseThatAreKept(t *testing.T) {
	t.Parallel()
	cli{}.run(t, "watch", "--orders", "--kind", "failed").oneError(t, base.ExitUsage, "--orders and --kind exclude each other")
	s := natstest.Run(t)
	do := func(by string, args ...string) {
		t.Helper()
		r := cli{env: map[string]string{"USER": by}, stdin: `{"version":1,"jobs":[{"name":"report","schedule":"0 7 * * *"}]}`}.run(t, append(args, "--server", s.ClientURL())...)
		if r.code != 0 {
			t.Fatalf("%v: %+v", args, r)
		}
	}
	do("root", "setup")
	do("alice", "job", "apply", "-f", "-")
	do("bob", "job", "pause", "report")
	cmd := command(t, "watch", "--orders", "-o", "json", "--server", s.ClientURL())
	lines := bufio.NewScanner(begin(t, cmd))
	for _, want := range []string{"alice@ create", "bob@ pause", "carol@ resume"} {
		by, order, _ := strings.Cut(want, " ")
		if by == "carol@" {
			do("carol", "job", "resume", "report")
		}
		if !lines.Scan() || !strings.Contains(lines.Text(), `"node":"`+by) || !strings.Contains(lines.Text(), `"order":"`+order+`"`) {
			t.Errorf("got %s, want %s", lines.Text(), want)
		}
	}
	send(t, cmd, syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
