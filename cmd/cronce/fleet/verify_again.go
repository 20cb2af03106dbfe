package fleet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/check/verify"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

const (
	// atOnce limits concurrent requests to the broker.
	atOnce = 16

	// inHand limits the problems held in memory: a week may have many more.
	inHand = 1024
)

// lookAgain reads each problem's record again at the ledger's leader, because lists may be
// stale and a slot may have proceeded since the messages were listed.
func (v *verifier) lookAgain(ctx context.Context) error {
	if !some(v.check.Problems()) {
		return nil
	}
	if err := v.waiting(ctx); err != nil {
		return err
	}
	return inChunks(v.check.Problems(), func(problems []verify.Problem) error {
		records := make([]job.Record, len(problems))
		errs := make([]error, len(problems))
		err := v.each(ctx, len(problems), func(ctx context.Context, i int) error {
			if k := problems[i].Kind; k == verify.Doubled || k == verify.Early {
				errs[i] = job.ErrNotFound // a later record cannot undo it
				return nil
			}
			records[i], _, errs[i] = v.Ledger().Read(ctx, problems[i].Slot)
			if errors.Is(errs[i], job.ErrNotFound) || errors.Is(errs[i], job.ErrInvalid) || errors.Is(errs[i], job.ErrVersion) {
				return nil
			}
			return errs[i]
		})
		if err != nil {
			return err
		}
		for i, p := range problems {
			switch {
			case errs[i] == nil:
				v.check.Record(records[i], time.Time{})
			case v.Unreadable(errs[i]):
				v.check.Unreadable(p.Slot)
			}
		}
		return nil
	})
}

// each calls f for 0 to n-1, at most atOnce at a time.
func (v *verifier) each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	var mu sync.Mutex
	for i := range n {
		group.Go(func() error {
			err := f(ctx, i)
			mu.Lock()
			defer mu.Unlock()
			v.read++
			v.progress()
			return err
		})
	}
	return group.Wait()
}

// offer publishes a slot again, and reports whether another process has just done so. A
// cluster may answer that a copy is in progress; publish then repeats until it knows.
func (v *verifier) offer(ctx context.Context, p verify.Problem) (already bool, err error) {
	if p.Told {
		e := job.Event{
			V: codec.Version, Kind: job.EventAlert, Time: time.Now().UTC(), Node: v.node,
			ID: p.Slot.ID(), Job: p.Slot.Job, Error: "offered again: its record is missing", Reopened: true,
		}
		if err := v.Tell(ctx, e); err != nil {
			return false, err
		}
	}
	queue, messages, payload := v.check.Offer(p, v.node)
	if p.Slot.Token != "" {
		r, _, err := v.Ledger().Read(ctx, p.Slot)
		if err != nil {
			return false, err
		}
		payload = r.Payload
	}
	already = true
	for _, m := range messages {
		folded, err := v.publish(ctx, queue, m, payload)
		if err != nil {
			return false, err
		}
		already = already && folded
	}
	return already, nil
}

// publish sends a message until the broker has answered.
func (v *verifier) publish(ctx context.Context, queue string, m core.Message, payload []byte) (already bool, err error) {
	for {
		wait, err := v.Slots().Publish(queue, m, payload)
		if err == nil {
			already, err = wait(ctx)
		}
		if !errors.Is(err, job.ErrUnknown) || errors.Is(err, job.ErrDenied) {
			return already, err
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("offer again: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func some[T any](seq iter.Seq[T]) bool {
	for range seq {
		return true
	}
	return false
}

// inChunks calls f with up to inHand values at a time. The slice is valid only during the
// call.
func inChunks[T any](seq iter.Seq[T], f func([]T) error) error {
	chunk := make([]T, 0, inHand)
	for value := range seq {
		if chunk = append(chunk, value); len(chunk) == inHand {
			if err := f(chunk); err != nil {
				return err
			}
			chunk = chunk[:0]
		}
	}
	return f(chunk)
}
