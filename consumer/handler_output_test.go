package consumer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// runOne runs one slot of a job until it has its outcome.
func runOne(t *testing.T, j job.Job, h job.Handler) (b *bench, r job.Record) {
	t.Helper()
	b = newBench(t)
	b.handle(j, h)
	stop := b.run()
	s := b.publish(j.Name)
	time.Sleep(time.Minute)
	if err := stop(); err != nil {
		t.Error(err)
	}
	return b, b.record(s)
}

//go:noinline
func deep(n int) {
	if n == 0 {
		panic("boom")
	}
	deep(n - 1)
}

func TestASlotThatPrintsTenMegabytesAndPanicsKeepsBothEndsAndThePanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, r := runOne(t, job.Job{Name: "report", Retry: job.Retry{Attempts: 1}}, func(_ context.Context, run job.Run) error {
			fmt.Fprintln(run.Output, "the first line")
			_, _ = run.Output.Write(bytes.Repeat([]byte("0123456789\n"), 10<<20/11))
			fmt.Fprintln(run.Output, "the last line")
			deep(100)
			return nil
		})
		if !strings.HasPrefix(r.Output, "the first line\n0123") || !strings.HasSuffix(r.Output, "789\nthe last line\n") || !strings.Contains(r.Output, " bytes cut) ...\n") {
			t.Errorf("%d bytes: %.100q ... %q", len(r.Output), r.Output, r.Output[max(0, len(r.Output)-100):])
		}
		if n := len(r.Output); n < 4000 || n > 4200 {
			t.Errorf("%d bytes are kept, want 4 KiB", n)
		}
		if r.State != job.Failed || !strings.HasPrefix(r.Error, "panic: boom\npanic(") || !strings.Contains(r.Error, "consumer_test.deep(") {
			t.Errorf("%s %q", r.State, r.Error)
		}
		// The end of the stack is the function of the handler.
		if end := r.Error[len(r.Error)-300:]; !strings.Contains(end, "TestASlotThatPrintsTenMegabytes") || strings.Contains(r.Error, "debug.Stack") {
			t.Errorf("the error ends in %q", end)
		}
	})
}

func TestEveryAttemptKeepsItsOutput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, r := runOne(t, job.Job{Name: "report", Retry: job.Retry{Attempts: 3}}, func(_ context.Context, run job.Run) error {
			fmt.Fprintf(run.Output, "attempt %d\n", run.Attempt)
			if err := run.SetResult(run.Attempt); err != nil {
				return err
			}
			if run.Attempt < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		if r.State != job.Succeeded || len(r.Attempts) != 3 || r.Attempts[0].Output != "attempt 1\n" || r.Attempts[1].Output != "attempt 2\n" || r.Attempts[2].Output != "" || r.Output != "attempt 3\n" {
			t.Errorf("%s, %+v, %q", r.State, r.Attempts, r.Output)
		}
		if string(r.Result) != "3" {
			t.Errorf("the result is %s, want that of the attempt that succeeded", r.Result)
		}
	})
}

func TestAResultIsKeptOnlyIfTheAttemptSucceeds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		h    job.Handler
		want string
	}{
		"succeeded": {func(_ context.Context, run job.Run) error { return run.SetResult(map[string]int{"rows": 7}) }, `{"rows":7}`},
		"failed": {func(_ context.Context, run job.Run) error {
			_ = run.SetResult(1)
			return errors.New("boom")
		}, ""},
		"removed": {func(_ context.Context, run job.Run) error {
			_ = run.SetResult(1)
			return run.SetResult(nil)
		}, ""},
		"too large, the one before stays": {func(_ context.Context, run job.Run) error {
			_ = run.SetResult(1)
			if err := run.SetResult(strings.Repeat("x", job.MaxResult)); !errors.Is(err, job.ErrInvalid) || !strings.Contains(err.Error(), "65538 bytes of JSON, at most 64 KiB") {
				return fmt.Errorf("got %w", err)
			}
			return nil
		}, "1"},
		"no JSON, the one before stays": {func(_ context.Context, run job.Run) error {
			_ = run.SetResult(1)
			if err := run.SetResult(make(chan int)); !errors.Is(err, job.ErrInvalid) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		}, "1"},
		"the largest": {func(_ context.Context, run job.Run) error {
			return run.SetResult(strings.Repeat("x", job.MaxResult-2))
		}, `"` + strings.Repeat("x", job.MaxResult-2) + `"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, r := runOne(t, job.Job{Name: "report", Retry: job.Retry{Attempts: 1}}, c.h)
				if string(r.Result) != c.want || (name != "failed") != (r.State == job.Succeeded) {
					t.Errorf("%s %q, result %.100s, want %.100s", r.State, r.Error, r.Result, c.want)
				}
			})
		})
	}
}

func TestTheNextJobOfAChainReadsTheResults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "extract"}, func(_ context.Context, run job.Run) error { return run.SetResult([]string{"a", "b"}) })
		b.handle(job.Job{Name: "silent"}, func(context.Context, job.Run) error { return nil })
		var got map[string]json.RawMessage
		b.handle(job.Job{Name: "load", After: []string{"extract", "silent"}}, func(_ context.Context, run job.Run) error {
			got = run.Results
			return nil
		})
		stop := b.run()
		b.publish("extract")
		b.publish("silent")
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(got) != 1 || string(got["extract"]) != `["a","b"]` {
			t.Errorf("got %s", got)
		}
	})
}

func TestAJobOfAChainWaitsUntilTheResultsCanBeRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "extract"}, func(_ context.Context, run job.Run) error { return run.SetResult(7) })
		started := 0
		var got json.RawMessage
		b.handle(job.Job{Name: "load", After: []string{"extract"}}, func(_ context.Context, run job.Run) error {
			started++
			got = run.Results["extract"]
			return nil
		})
		failures := 2
		b.ledger.read = func(s job.Slot) error {
			if s.Job == "extract" && failures > 0 {
				failures--
				return job.ErrUnknown
			}
			return nil
		}
		stop := b.run()
		s := b.publish("extract")
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		s.Job = "load"
		if r := b.record(s); started != 1 || string(got) != "7" || r.State != job.Succeeded || r.Attempt != 1 || failures != 0 {
			t.Errorf("%d starts, %s after %d attempts, result %s", started, r.State, r.Attempt, got)
		}
	})
}

// reported returns the events of a kind.
func (b *bench) reported(kind job.EventKind) []job.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.events), func(e job.Event) bool { return e.Kind != kind })
}

func TestProgressIsToldAtMostOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, r := runOne(t, job.Job{Name: "report"}, func(_ context.Context, run job.Run) error {
			for i := range 350 {
				run.Progress(i, 350, "row "+strings.Repeat("x", 1000))
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(2 * time.Second)
			run.Progress(350, 350, "done")
			return nil
		})
		var done []int
		for _, e := range b.reported(job.EventProgress) {
			done = append(done, e.Progress.Done)
			if e.Progress.Total != 350 || len(e.Progress.Text) > 210 || e.ID != r.Slot.ID() || e.Attempt != 1 || e.Fence != r.Attempts[0].Fence || e.Progress.Time.IsZero() {
				t.Errorf("%+v %+v", e, e.Progress)
			}
		}
		if len(done) != 6 || done[0] != 0 || done[4] != 349 || done[5] != 350 {
			t.Errorf("published at %v, want six times: at once, each second, and the newest", done)
		}
		if _, revision, err := b.ledger.Read(t.Context(), r.Slot); err != nil || revision != r.Attempts[0].Fence+1 {
			t.Errorf("the ledger is at %d, %v; want nothing written between the claim at %d and the outcome", revision, err, r.Attempts[0].Fence)
		}
	})
}

func TestOutputIsSentOnlyWhileItIsFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var answers []exchange.OutputAnswer
		b.handle(job.Job{Name: "report"}, func(_ context.Context, run job.Run) error {
			say := func(s string) { _, _ = io.WriteString(run.Output, s); time.Sleep(time.Second) }
			ask := func(follow bool) { answers = append(answers, b.cfg.Table.Output(run.Slot.Key(), follow)) }
			say("before ")
			ask(false)
			say("asked ")
			run.Progress(1, 3, "half")
			ask(true)
			say("followed ")
			time.Sleep(exchange.FollowFor)
			say("after ")
			ask(true)
			_, _ = io.WriteString(run.Output, "the end")
			return nil
		})
		stop := b.run()
		s := b.publish("report")
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		var got []string
		for _, e := range b.reported(job.EventOutput) {
			got = append(got, fmt.Sprint(e.From, e.To, e.Output))
		}
		if want := []string{"13 22followed ", "28 35the end"}; !slices.Equal(got, want) {
			t.Errorf("sent %q, want %q", got, want)
		}
		fence := b.record(s).Attempts[0].Fence
		for i, want := range []string{"before ", "before asked ", "before asked followed after "} {
			if a := answers[i]; !a.Runs || a.Output != want || a.To != int64(len(want)) || a.Attempt != 1 || a.Fence != fence || (a.Progress != nil) != (i > 0) {
				t.Errorf("answer %d: %+v", i, a)
			}
		}
		if a := b.cfg.Table.Output(s.Key(), true); a.Runs {
			t.Errorf("after its end: %+v", a)
		}
		// The followed output ends before the event of the outcome.
		if kinds := b.kinds(); kinds[len(kinds)-1] != job.EventSucceeded {
			t.Errorf("events %v", kinds)
		}
	})
}

func TestReportsAfterTheHandlerReturnedAreDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var left job.Run
		b, r := runOne(t, job.Job{Name: "report"}, func(_ context.Context, run job.Run) error {
			left = run
			run.Progress(0, 2, "")
			run.Progress(1, 2, "")
			return nil
		})
		fmt.Fprint(left.Output, "late")
		left.Progress(2, 2, "")
		left.Logger.Info("late")
		if err := left.SetResult(1); !errors.Is(err, job.ErrInvalid) {
			t.Errorf("SetResult returns %v", err)
		}
		time.Sleep(time.Minute)
		if n := len(b.reported(job.EventProgress)); n != 1 || r.Output != "" || r.Result != nil {
			t.Errorf("%d events, output %q, result %s", n, r.Output, r.Result)
		}
	})
}

func TestLinesOfTheLoggerGoIntoTheOutputAndTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var logged bytes.Buffer
		b.cfg.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn}))
		b.handle(job.Job{Name: "report"}, func(_ context.Context, run job.Run) error {
			run.Logger.Debug("hidden")
			run.Logger.Info("rows read", "rows", 7)
			run.Logger.With("table", "a").WithGroup("db").Warn("slow", "ms", 900)
			return nil
		})
		stop := b.run()
		s := b.publish("report")
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		out := b.record(s).Output
		if strings.Count(out, "\n") != 2 || !strings.Contains(out, `level=INFO msg="rows read" rows=7`) || !strings.Contains(out, "level=WARN msg=slow table=a db.ms=900") {
			t.Errorf("output %q", out)
		}
		if log := logged.String(); strings.Contains(log, "rows read") || !strings.Contains(log, "msg=slow slot="+s.ID()+" attempt=1 table=a db.ms=900") {
			t.Errorf("log %q", log)
		}
	})
}

// A test of a handler needs no worker.
func TestAHandlerIsTestedWithARunOfItsOwn(t *testing.T) {
	t.Parallel()
	run := job.Run{}
	run.Progress(1, 2, "")
	if err := run.SetResult(7); err != nil {
		t.Error(err)
	}
	if err := run.SetResult(func() {}); !errors.Is(err, job.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

func TestAPanicOfTheEmitterIsNoFailureOfTheHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		emit := b.cfg.Emit
		b.cfg.Emit = func(e job.Event) {
			if e.Kind == job.EventProgress || e.Kind == job.EventOutput {
				panic("emit")
			}
			emit(e)
		}
		b.handle(job.Job{Name: "report"}, func(_ context.Context, run job.Run) error {
			b.cfg.Table.Output(run.Slot.Key(), true)
			for range 3 {
				run.Progress(1, 2, "")
				fmt.Fprintln(run.Output, "x")
				time.Sleep(time.Second)
			}
			return nil
		})
		stop := b.run()
		s := b.publish("report")
		time.Sleep(time.Minute)
		if r := b.record(s); r.State != job.Succeeded || r.Output != "x\nx\nx\n" {
			t.Errorf("%s %q %q", r.State, r.Error, r.Output)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
