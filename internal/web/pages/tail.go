package pages

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/internal/web/problem"
	"github.com/cronce-io/cronce/internal/web/stream"
)

const (
	// maxTails bounds the outputs that a process follows at once.
	maxTails = 100

	// invisible is sent while the slot writes nothing.
	invisible = "\u200b"
)

// tail sends what a slot writes as plain text, until the slot has its outcome. A browser shows it
// as it arrives, even without a script.
func (s *Site) tail(w http.ResponseWriter, r *http.Request) {
	if !s.tails.TryAcquire(1) {
		problem.Write(w, fault.Unavailable, fmt.Sprintf("this process follows %d outputs already", maxTails))
		return
	}
	defer s.tails.Release(1)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	if _, err := s.client.Slot(ctx, r.PathValue("id")); err != nil {
		problem.Of(err, true).Write(w)
		return
	}
	pieces := make(chan string)
	go func() {
		defer close(pieces)
		for p, err := range s.client.Tail(ctx, r.PathValue("id")) {
			select {
			case pieces <- tailText(p, err):
			case <-ctx.Done():
				return
			}
		}
	}()
	to := stream.New(w, r, "text/plain; charset=utf-8")
	write := func(text string) error {
		_, err := io.WriteString(to, text)
		return err
	}
	if write("") == nil { // the browser shows the page before the first piece comes
		stream.Follow(ctx, to, pieces, invisible, write)
	}
}

// tailText formats a piece, or the error that ended the tail.
func tailText(p client.TailPiece, err error) string {
	switch {
	case err != nil:
		return fmt.Sprintf("\n(%s)\n", printable.Line(err.Error()))
	case p.Outcome != nil:
		return fmt.Sprintf("\n(%s)\n", p.Outcome.State)
	case p.Problem != nil:
		return fmt.Sprintf("\n(the output cannot be followed; the outcome will show its beginning and its end: %s)\n", printable.Line(p.Problem.Error()))
	case p.Error != "":
		return fmt.Sprintf("\n(attempt %d failed: %s)\n", p.Attempt, printable.Text(p.Error))
	case p.Skipped > 0:
		return fmt.Sprintf("\n(%d bytes skipped)\n%s", p.Skipped, printable.Text(p.Output))
	}
	return printable.Text(p.Output)
}
