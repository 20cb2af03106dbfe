//go:build unix

package torture

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/lab/proxy"
)

func TestARunEndsIfNothingCanBeWrittenInItsFolder(t *testing.T) {
	t.Parallel()
	ctx, fail := context.WithCancelCause(t.Context())
	defer fail(nil)
	run := &torture{cfg: Config{Dir: filepath.Join(t.TempDir(), "gone")}, fail: fail}
	run.watchDisk(ctx.Done()) // it returns, and ends the run
	if err := context.Cause(ctx); err == nil || !strings.Contains(err.Error(), "is the disk full?") {
		t.Errorf("the run ended because of %v, want that nothing can be written", err)
	}
}

func TestAProcessThatEndsIsACrashUnlessThatWasPlannedOrItsRecordCannotBeWritten(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]struct {
		violations int
		ends       string
	}{1: {1, ""}, diedByItself: {0, ""}, unrecorded: {0, "w1.1 could not write its record"}} {
		ctx, fail := context.WithCancelCause(t.Context())
		ended, end := context.WithCancel(ctx)
		end() // so that no further life begins
		run := &torture{cfg: Config{Dir: t.TempDir()}, fail: fail, fleetCtx: ended, deaths: map[string]time.Duration{}, faults: map[string]int{}}
		p, err := run.startCommand("w1.1", exec.Command("/bin/sh", "-c", fmt.Sprint("exit ", status)), "")
		if err != nil {
			t.Fatal(err)
		}
		m := &member{t: run, name: "w1", now: p}
		m.watch(p)
		cause := ""
		if err := context.Cause(ctx); err != nil {
			cause = err.Error()
		}
		if len(run.violations) != want.violations || !strings.Contains(cause, want.ends) || want.ends == "" && cause != "" {
			t.Errorf("status %d: violations %v, the run ends because of %q; want %d violations, and %q", status, run.violations, cause, want.violations, want.ends)
		}
		fail(nil)
	}
}

// Each process reaches the servers through a proxy, at the distance of the run.
func TestEachProcessIsAsFarAwayAsTheRunSays(t *testing.T) {
	t.Parallel()
	server := natstest.Run(t)
	run := &torture{cfg: Config{Distance: proxy.Distance{RTT: 100 * time.Millisecond}}}
	p, err := run.proxyOf(0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	nc := natstest.Connect(t, server.ClientURL(), nats.SetCustomDialer(proxy.Dialer(p.Address())))
	if rtt, err := nc.RTT(); err != nil || rtt < 100*time.Millisecond {
		t.Errorf("a round trip of %v, %v: want 100ms at least", rtt, err)
	}
}
