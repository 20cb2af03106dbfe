package pages

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/internal/web/problem"
	"github.com/cronce-io/cronce/internal/web/stream"
)

const (
	// maxTails bounds the outputs that a process follows at once.
	maxTails = 100

	// invisible is sent if the slot writes nothing.
	invisible = "\u200b"
)

// tail sends what a slot writes as plain text, until the slot has its outcome. A browser shows it
// as it arrives, even without a script.
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
		problem.Of(err, true).Write(w)
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
	to := stream.New(w, "text/plain; charset=utf-8")
	keep := time.NewTicker(stream.Silence)
	defer keep.Stop()
	for text := ""; ; {
		if _, err := io.WriteString(to, text); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case text = <-pieces:
		case text = <-ended:
			_, _ = io.WriteString(to, text) // the browser is gone
			return
		case <-keep.C:
			text = invisible
		}
	}
}

func tailText(p client.TailPiece) string {
	switch {
	case p.Problem != nil:
		return fmt.Sprintf("\n(the output cannot be followed; the outcome will have its beginning and its end: %s)\n", printable.Line(p.Problem.Error()))
	case p.Error != "":
		return fmt.Sprintf("\n(attempt %d failed: %s)\n", p.Attempt, printable.Text(p.Error))
	case p.Skipped > 0:
		return fmt.Sprintf("\n(%d bytes skipped)\n%s", p.Skipped, printable.Text(p.Output))
	}
	return printable.Text(p.Output)
}
