package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/output"
	"github.com/cronce-io/cronce/job"
)

const (
	// progressEvery is the shortest interval between two progress events of an attempt.
	progressEvery = time.Second

	// feedEvery is how long output is collected before it is sent.
	feedEvery = 100 * time.Millisecond
)

var errOver = errors.New("the handler has returned")

// reports takes what a handler reports while it runs: its output, lines of its logger, progress
// and a result. It implements io.Writer and job.Reporter. It is safe for concurrent use: a
// handler may leave goroutines behind. Nothing in it waits for the broker.
//
// Output is sent only while it is followed. Otherwise Write only copies the output into a
// buffer, without a timer or a goroutine. attempt.endReports ends the reports.
type reports struct {
	*Consumer
	slot    job.Slot
	attempt int
	fence   uint64

	log   slog.Logger // Run.Logger
	once  sync.Once
	lines slog.Handler // where log writes; set in once

	mu     sync.Mutex
	closed bool // the handler has returned: what comes later is dropped
	out    output.Buffer
	result json.RawMessage

	progress      *job.Progress
	progressSent  time.Time   // when the last event of progress was sent
	progressTimer *time.Timer // sends the next one; nil: there is nothing new to send

	feed  *output.Feed // nil: the output is not followed
	until time.Time    // the end of the feed
	flush *time.Timer
}

// Write implements io.Writer. It never fails.
func (r *reports) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return len(p), nil
	}
	if r.feed != nil {
		r.pass(p)
	}
	r.out.Write(p)
	return len(p), nil
}

// SetResult implements job.Reporter.
func (r *reports) SetResult(result json.RawMessage) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("%w call: %w", job.ErrInvalid, errOver)
	}
	r.result = result
	return nil
}

// Progress implements job.Reporter.
func (r *reports) Progress(p job.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	p.Time = r.cfg.Now().UTC()
	r.progress = &p
	switch wait := progressEvery - time.Since(r.progressSent); {
	case r.progressTimer != nil:
	case wait <= 0:
		r.sendProgress()
	default:
		r.progressTimer = time.AfterFunc(wait, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.progressTimer = nil; !r.closed {
				r.sendProgress()
			}
		})
	}
}

// sendProgress sends the newest progress. r.mu is held.
func (r *reports) sendProgress() {
	r.progressSent = time.Now()
	e := r.event(job.EventProgress, r.slot, r.attempt, r.fence)
	e.Progress = r.progress
	r.emitSafely(e)
}

// emitSafely sends an event. It catches a panic of Emit, which must not fail the job's handler.
func (r *reports) emitSafely(e job.Event) {
	defer func() {
		if p := recover(); p != nil {
			r.cfg.Logger.Error("sending an event panicked", "slot", e.ID, "error", panicked(p))
		}
	}()
	r.cfg.Emit(e)
}

// pass adds output to the feed, or ends the feed if its time is over. r.mu is held.
func (r *reports) pass(p []byte) {
	now := time.Now()
	if now.After(r.until) {
		r.send(true)
		r.feed = nil
		return
	}
	r.feed.Add(p, r.out.Written(), now)
	if r.flush == nil {
		r.flush = time.AfterFunc(feedEvery, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.flush = nil; r.feed != nil && !r.closed {
				r.send(false)
			}
		})
	}
}

// send sends the output in the feed as events. Unless last is true, an incomplete character at
// the end stays in the feed. r.mu is held.
func (r *reports) send(last bool) {
	for _, p := range r.feed.Take(last) {
		e := r.event(job.EventOutput, r.slot, r.attempt, r.fence)
		e.Output, e.From, e.To = p.Text, p.From, p.To
		r.emitSafely(e)
	}
}

// answer returns what was reported so far. With follow, later output is sent as events for the
// next exchange.FollowFor.
func (r *reports) answer(follow bool) exchange.OutputAnswer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return exchange.OutputAnswer{}
	}
	if follow {
		if r.until = time.Now().Add(exchange.FollowFor); r.feed == nil {
			r.feed = &output.Feed{}
		}
	}
	return exchange.OutputAnswer{
		Runs: true, Attempt: r.attempt, Fence: r.fence, Progress: r.progress, Output: r.out.String(), To: r.out.Written(),
	}
}

// logLines is the slog.Handler of job.Run.Logger. Most attempts log nothing, so logLines builds
// the handlers behind it at the first use.
type logLines struct{ r *reports }

func (l logLines) handler() slog.Handler {
	l.r.once.Do(func() {
		l.r.lines = slog.NewMultiHandler(
			slog.NewTextHandler(l.r, nil), // slog.LevelInfo and above
			l.r.cfg.Logger.With("slot", l.r.slot.ID(), "attempt", l.r.attempt).Handler(),
		)
	})
	return l.r.lines
}

func (l logLines) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || l.r.cfg.Logger.Enabled(ctx, level)
}

func (l logLines) Handle(ctx context.Context, line slog.Record) error {
	return l.handler().Handle(ctx, line)
}

func (l logLines) WithAttrs(attrs []slog.Attr) slog.Handler { return l.handler().WithAttrs(attrs) }
func (l logLines) WithGroup(name string) slog.Handler       { return l.handler().WithGroup(name) }
