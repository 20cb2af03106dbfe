package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

// A handler prints ten megabytes and panics, at both of its attempts.
func TestSlotShowHasThePanicOfAHandlerThatPrintedTenMegabytes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s, err := cronce.New(t.Context(), natstest.Connect(t, f.url))
	if err != nil {
		t.Fatal(err)
	}
	err = s.Handle(job.Job{Name: "loud", Schedule: job.OnDemand, Retry: job.Retry{Attempts: 2, Backoff: time.Millisecond}}, func(_ context.Context, run job.Run) error {
		fmt.Fprintf(run.Output, "begun %d\n", run.Attempt)
		_, _ = io.WriteString(run.Output, strings.Repeat("0123456\n", 10<<20/8))
		fmt.Fprintf(run.Output, "the end of %d\n", run.Attempt)
		panic("boom")
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	life, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(life) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		cancel()
	})
	run, err := s.Trigger(ctx, "loud", cronce.TriggerOptions{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	out := f.ok(t, "slot", "show", run.ID())
	for _, want := range []string{
		"panic: boom", "error of attempt 1:\n  panic: boom", "error of attempt 2:\n  panic: boom", "slot_panic_test.go:",
		"output of attempt 1:\n  begun 1\n", "the end of 1\n", "output of the last attempt:\n  begun 2\n", "the end of 2\n", " bytes cut) ...\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not shown in:\n%s", want, out)
		}
	}
}
