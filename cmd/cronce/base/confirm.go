package base

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Confirm asks a question on stderr, and reports whether the answer is yes. what names the order in the
// error for the end of the input without an answer. The user may take longer than the timeout of the
// broker; alive is called meanwhile.
func (a *App) Confirm(ctx context.Context, answers *bufio.Reader, alive func(), what, question string) (bool, error) {
	fmt.Fprint(a.Stderr, question)
	stop := Session{App: a, Alive: alive}.KeepWaiting("")
	defer stop()
	text, err := ReadUntil(ctx, func() (string, error) { return answers.ReadString('\n') })
	answer := strings.ToLower(strings.TrimSpace(text))
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case answer == "" && errors.Is(err, io.EOF):
		return false, Usage(NoTerminal(what))
	}
	return answer == "y" || answer == "yes", nil
}

// NoTerminal is the error for an order that asks before it removes, if there is no terminal for the
// answer.
func NoTerminal(what string) error {
	return fmt.Errorf("%s asks before it removes, and there is no terminal: add --yes", what)
}
