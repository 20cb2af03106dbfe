package cronce_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

// A client follows the output of a slot from its first attempt to its outcome, and sees the
// progress and the output of the running attempt.
func TestTailFollowsASlotToItsOutcome(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	s, _ := scheduler(t, srv)
	step := make(chan string)
	handle(t, s, job.Job{Name: "report", Schedule: job.OnDemand, Retry: job.Retry{Attempts: 2, Backoff: 10 * time.Millisecond}}, func(ctx context.Context, run job.Run) error {
		fmt.Fprintf(run.Output, "attempt %d\n", run.Attempt)
		run.Progress(run.Attempt, 7, "orders")
		for {
			select {
			case text := <-step:
				if text == "fail" {
					return errors.New("boom")
				}
				if text == "end" {
					return run.SetResult(map[string]int{"rows": 7})
				}
				_, _ = io.WriteString(run.Output, text)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	running(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	c, err := client.New(ctx, srv.Conn())
	if err != nil {
		t.Fatal(err)
	}
	var run client.Run
	natstest.Eventually(t, "the job in the registry", func() bool {
		run, err = c.Trigger(ctx, "report", client.TriggerOptions{Key: "7"})
		return err == nil
	})
	id := run.Slot.ID()
	var live client.RunningAttempt
	natstest.Eventually(t, "the attempt's progress", func() bool {
		live, err = c.Running(ctx, id)
		return err == nil && live.Progress != nil
	})
	if live.Attempt != 1 || live.Output != "attempt 1\n" || live.Written != 10 || live.Progress.Done != 1 || live.Progress.Total != 7 || live.Progress.Text != "orders" || live.Progress.Time.IsZero() {
		t.Errorf("%+v %+v", live, live.Progress)
	}

	pieces := make(chan client.TailPiece, 100)
	type end struct {
		slot client.SlotDetails
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		slot, err := tail(ctx, c, id, func(p client.TailPiece) { pieces <- p })
		ended <- end{slot, err}
	}()
	var seen strings.Builder
	sees := func(want string) {
		t.Helper()
		for !strings.HasSuffix(seen.String(), want) {
			select {
			case p := <-pieces:
				if p.Problem != nil || p.Skipped > 0 {
					t.Errorf("%+v", p)
				}
				fmt.Fprintf(&seen, "%d:%s", p.Attempt, p.Output)
			case <-ctx.Done():
				t.Fatalf("seen %q, want %q at its end", seen.String(), want)
			}
		}
	}
	sees("1:attempt 1\n")
	step <- "line\n"
	sees("1:line\n")
	step <- "fail"
	sees("2:attempt 2\n")
	step <- "more\n"
	sees("2:more\n")
	step <- "the last"
	step <- "end"
	sees("2:the last")
	switch e := <-ended; {
	case e.err != nil || e.slot.State != job.Succeeded || string(e.slot.Result) != `{"rows":7}` || e.slot.Output != "attempt 2\nmore\nthe last":
		t.Errorf("%+v, %v", e.slot, e.err)
	case e.slot.Attempts[0].Output != "attempt 1\nline\n":
		t.Errorf("%+v", e.slot.Attempts)
	}

	// A slot that has ended is shown as it is recorded.
	slot, err := tail(ctx, c, id, func(p client.TailPiece) { pieces <- p })
	if p := <-pieces; err != nil || slot.State != job.Succeeded || p.Output != slot.Output || p.Attempt != 2 {
		t.Errorf("%+v, %+v, %v", p, slot, err)
	}
	if live, err := c.Running(ctx, id); err != nil || live.Attempt != 0 {
		t.Errorf("%+v, %v", live, err)
	}
	if _, err := tail(ctx, c, "report:@none", nil); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("no such slot: %v", err)
	}
	if _, err := c.Running(ctx, "report:@none"); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("no such slot runs: %v", err)
	}
}

// tail calls piece with the pieces of output, and returns the outcome.
func tail(ctx context.Context, c *client.Client, id string, piece func(client.TailPiece)) (d client.SlotDetails, err error) {
	for p, err := range c.Tail(ctx, id) {
		switch {
		case err != nil:
			return d, err
		case p.Outcome != nil:
			d = *p.Outcome
		default:
			piece(p)
		}
	}
	return d, nil
}

// 10 MB come faster than they are sent, and then the handler panics. The tail says how much is
// missing, and ends with what the attempt wrote last, once. The record has both ends and the panic.
func TestTailHasTheEndOfABurst(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	s, _ := scheduler(t, srv)
	followed := make(chan struct{}, 2)
	const size = 10 << 20
	handle(t, s, job.Job{Name: "report", Schedule: job.OnDemand, Retry: job.Retry{Attempts: 2, Backoff: time.Millisecond}}, func(ctx context.Context, run job.Run) error {
		fmt.Fprintf(run.Output, "begun %d\n", run.Attempt)
		select {
		case <-followed:
		case <-ctx.Done():
		}
		_, _ = io.WriteString(run.Output, strings.Repeat("0123456\n", size/8))
		fmt.Fprintf(run.Output, "the end of %d", run.Attempt)
		panic("boom")
	})
	running(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	c, err := client.New(ctx, srv.Conn())
	if err != nil {
		t.Fatal(err)
	}
	run, err := s.Trigger(ctx, "report", client.TriggerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, length := map[int]string{}, map[int]int64{}
	slot, err := tail(ctx, c, run.ID(), func(p client.TailPiece) {
		if strings.Contains(p.Output, "begun") {
			followed <- struct{}{}
		}
		got[p.Attempt] += p.Output
		length[p.Attempt] += p.Skipped + int64(len(p.Output))
	})
	if err != nil || slot.State != job.Failed || !strings.HasPrefix(slot.Error, "panic: boom\n") || !strings.HasPrefix(slot.Output, "begun 2\n") || !strings.HasSuffix(slot.Output, "\nthe end of 2") {
		t.Errorf("%s %q, %v", slot.State, slot.Error, err)
	}
	for n := 1; n <= 2; n++ {
		text, end := got[n], fmt.Sprintf("the end of %d", n)
		if !strings.HasPrefix(text, fmt.Sprintf("begun %d\n", n)) || strings.Count(text, end) != 1 || !strings.HasSuffix(text, end) {
			t.Errorf("attempt %d: %q ... %q", n, text[:min(len(text), 20)], text[max(0, len(text)-20):])
		}
		if want := int64(size + len("begun 1\n") + len(end)); len(text) > 1<<20 || length[n] != want {
			t.Errorf("attempt %d: %d bytes seen or skipped, %d of them seen; %d were written", n, length[n], len(text), want)
		}
	}
}
