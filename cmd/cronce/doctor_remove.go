package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/printable"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// removed is a value that could not be read and was removed.
type removed struct {
	Bucket   string `json:"bucket"`
	Key      string `json:"key"`
	Revision uint64 `json:"revision"`
	Why      string `json:"why"`
}

var errNobodyToAsk = errors.New("--remove-unreadable asks before it removes, and no terminal can answer: add --yes")

// mayAsk refuses to ask where nobody can answer.
func (a *app) mayAsk(f doctorFlags) error {
	if !f.remove || f.yes {
		return nil
	}
	file, is := a.stdin.(*os.File)
	if !is {
		return errNobodyToAsk
	}
	if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return errNobodyToAsk
	}
	return nil
}

// removeUnreadable shows each value, asks unless --yes, and removes it at the revision
// that was shown.
func (a *app) removeUnreadable(ctx context.Context, f doctorFlags, store *kv.Store, all []*kv.UnreadableError, alive func()) ([]removed, error) {
	answers := bufio.NewReader(a.stdin)
	var gone []removed
	for _, e := range all {
		where := e.Bucket + "/" + printable.Clip(e.Key, widestCell)
		if errors.Is(e, job.ErrVersion) && !f.force {
			a.log.Warn("left: a newer version may have written it; if none runs, add --force", "key", where, "revision", e.Revision, "reason", oneLine(e.Err))
			continue
		}
		if !f.yes {
			yes, err := a.confirm(ctx, answers, alive, fmt.Sprintf("%s, revision %d of %s, %d bytes\n  cannot be read: %s\nRemove it? [y/N] ",
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
			a.log.Warn("left: it has changed since", "key", where, "revision", e.Revision)
		case errors.Is(err, job.ErrUnknown):
			return gone, try(fmt.Errorf("remove %s: %w", where, err), "cronce doctor, which shows whether it was removed")
		case err != nil:
			return gone, fmt.Errorf("remove %s: %w", where, err)
		default:
			gone = append(gone, removed{e.Bucket, e.Key, e.Revision, e.Err.Error()})
		}
	}
	return gone, nil
}

// confirm asks a question on stderr. No answer at all is an error: nobody is there.
func (a *app) confirm(ctx context.Context, answers *bufio.Reader, alive func(), question string) (bool, error) {
	fmt.Fprint(a.stderr, question)
	type line struct {
		text string
		err  error
	}
	lines := make(chan line, 1)
	go func() {
		text, err := answers.ReadString('\n')
		lines <- line{text, err}
	}()
	thinking := time.NewTicker(time.Second) // a person may take longer than a server
	defer thinking.Stop()
	for {
		select {
		case l := <-lines:
			answer := strings.ToLower(strings.TrimSpace(l.text))
			if answer == "" && errors.Is(l.err, io.EOF) {
				return false, usage(errNobodyToAsk)
			}
			return answer == "y" || answer == "yes", nil
		case <-thinking.C:
			alive()
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}
