package fleet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// removed is an unreadable value that was removed.
type removed struct {
	Bucket   string `json:"bucket"`
	Key      string `json:"key"`
	Revision uint64 `json:"revision"`
	Why      string `json:"why"`
}

var errNoTerminal = errors.New("--remove-unreadable asks before it removes, and there is no terminal: add --yes")

// checkTerminal returns an error if removeUnreadable would ask, and stdin is not a terminal.
func checkTerminal(a *base.App, f doctorFlags) error {
	if !f.remove || f.yes {
		return nil
	}
	if !base.IsTerminal(a.Stdin) {
		return errNoTerminal
	}
	return nil
}

// removeUnreadable shows each value, asks unless --yes, and removes it at the revision
// that was shown.
func removeUnreadable(ctx context.Context, a *base.App, f doctorFlags, store *kv.Store, all []*kv.UnreadableError, alive func()) ([]removed, error) {
	answers := bufio.NewReader(a.Stdin)
	var gone []removed
	for _, e := range all {
		where := e.Bucket + "/" + printable.Clip(e.Key, base.WidestCell)
		if errors.Is(e, job.ErrVersion) && !f.force {
			a.Log.Warn("not removed: a newer version may have written it; if none runs, add --force", "key", where, "revision", e.Revision, "reason", base.OneLine(e.Err))
			continue
		}
		if !f.yes {
			yes, err := confirm(ctx, a, answers, alive, fmt.Sprintf("%s, revision %d of %s, %d bytes\n  cannot be read: %s\nRemove it? [y/N] ",
				where, e.Revision, e.Time.UTC().Format(time.RFC3339), e.Size, printable.Clip(e.Err.Error(), 1000)))
			if err != nil {
				return gone, err
			}
			if !yes {
				continue
			}
		}
		err := store.RemoveUnreadable(ctx, e)
		alive()
		switch {
		case errors.Is(err, job.ErrConflict):
			a.Log.Warn("not removed: it has changed", "key", where, "revision", e.Revision)
		case errors.Is(err, job.ErrUnknown):
			return gone, base.Try(fmt.Errorf("remove %s: %w", where, err), "cronce doctor, which shows whether it was removed")
		case err != nil:
			return gone, fmt.Errorf("remove %s: %w", where, err)
		default:
			gone = append(gone, removed{e.Bucket, e.Key, e.Revision, e.Err.Error()})
		}
	}
	return gone, nil
}

// confirm asks a question on stderr. The end of the input without an answer is an error.
func confirm(ctx context.Context, a *base.App, answers *bufio.Reader, alive func(), question string) (bool, error) {
	fmt.Fprint(a.Stderr, question)
	stop := base.Session{App: a, Alive: alive}.KeepWaiting("") // the user may take longer than the timeout of the broker
	defer stop()
	text, err := base.ReadUntil(ctx, func() (string, error) { return answers.ReadString('\n') })
	answer := strings.ToLower(strings.TrimSpace(text))
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case answer == "" && errors.Is(err, io.EOF):
		return false, base.Usage(errNoTerminal)
	}
	return answer == "y" || answer == "yes", nil
}
