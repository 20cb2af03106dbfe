package pages

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/internal/web/problem"
)

const (
	// maxTails bounds the outputs that a process follows at once.
	maxTails = 100

	// tailWrite bounds a write to a browser that reads slowly.
	tailWrite = 10 * time.Second

	// tailSilence is how long the browser gets nothing at most, so that it and the proxies keep the
	// connection. It then gets an invisible character.
	tailSilence = 15 * time.Second

	invisible = "\u200b"
)

// tail sends what a slot writes as plain text, until the slot has its outcome. A browser shows it
// as it comes, without a script too.
func (s *Site) tail(w http.ResponseWriter, r *http.Request) {
	select {
	case s.tails <- struct{}{}:
		defer func() { <-s.tails }()
	default:
		problem.Write(w, fault.Unavailable, fmt.Sprintf("this process follows %d outputs already", maxTails))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	if _, err := s.client.Slot(ctx, r.PathValue("id")); err != nil {
		problem.Write(w, fault.Of(err), err.Error())
		return
	}
	pieces, ended := make(chan string), make(chan string, 1)
	go func() {
		for p, err := range s.client.Tail(ctx, r.PathValue("id")) {
			switch {
			case err != nil:
				ended <- fmt.Sprintf("\n(%s)\n", printable.Line(err.Error()))
				return
			case p.Outcome != nil:
				ended <- fmt.Sprintf("\n(%s)\n", p.Outcome.State)
				return
			}
			select {
			case pieces <- tailText(p):
			case <-ctx.Done():
				return
			}
		}
	}()
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would hold it back
	to := http.NewResponseController(w)
	keep := time.NewTicker(tailSilence)
	defer keep.Stop()
	for text, last := "", false; !last; {
		_ = to.SetWriteDeadline(time.Now().Add(tailWrite)) // not all servers have deadlines
		if _, err := w.Write([]byte(text)); err != nil {
			return
		}
		if to.Flush() != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case text = <-pieces:
		case text = <-ended:
			last = true
			_, _ = w.Write([]byte(text)) // the browser is gone
		case <-keep.C:
			text = invisible
		}
	}
}

func tailText(p client.TailPiece) string {
	switch {
	case p.Problem != nil:
		return fmt.Sprintf("\n(the output cannot be followed; its ends come with the outcome: %s)\n", printable.Line(p.Problem.Error()))
	case p.Error != "":
		return fmt.Sprintf("\n(attempt %d failed: %s)\n", p.Attempt, printable.Text(p.Error))
	case p.Skipped > 0:
		return fmt.Sprintf("\n(%d bytes skipped)\n%s", p.Skipped, printable.Text(p.Output))
	}
	return printable.Text(p.Output)
}
