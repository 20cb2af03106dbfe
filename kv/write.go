package kv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/cronce-io/cronce/job"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// asker puts single questions about one key to the broker; each ends within
// attemptTimeout, answered or not.
type asker interface {
	// put stores m if revision is the last of its key. job.ErrDenied ends the
	// write.
	put(ctx context.Context, m *nats.Msg, revision uint64) (uint64, error)
	// get reads the key at the stream's leader; errNothing: there is nothing.
	get(ctx context.Context) (entry, error)
}

// write stores m at revision and returns only what is certain: the new
// revision, ErrConflict when somebody else's write stands there, or ErrUnknown
// when ctx ended before the broker said. doc.go argues why this is sound.
func write(ctx context.Context, a asker, what string, m *nats.Msg, revision uint64) (uint64, error) {
	began := time.Now()
	won, err := a.put(ctx, m, revision)
	return settle(ctx, a, what, m, revision, began, won, err)
}

// settle is write from the answer to the first copy on, which was sent when it began.
func settle(ctx context.Context, a asker, what string, m *nats.Msg, revision uint64, began time.Time, won uint64, err error) (uint64, error) {
	fail := func(sentinel, err error) error {
		return fmt.Errorf("write %s at revision %d: %w (after %v): %w", what, revision, sentinel, time.Since(began).Round(time.Millisecond), err)
	}
	var pause *backoff.ExponentialBackOff
	for unanswered := false; ; won, err = a.put(ctx, m, revision) {
		if err == nil {
			return won, nil
		}
		switch kind := classify(err); {
		case kind == conflict:
			won, settled := judge(ctx, a, m, revision, err)
			if settled && won > 0 {
				return won, nil
			}
			if settled {
				return 0, fail(job.ErrConflict, err)
			}
		case kind == refused && unanswered:
			// The refusal is of this copy; an earlier one may have been stored.
			return 0, fail(job.ErrUnknown, err)
		case kind == refused:
			return 0, fmt.Errorf("write %s at revision %d: %w", what, revision, err)
		case errors.Is(err, job.ErrDenied):
			return 0, fmt.Errorf("write %s at revision %d: %w", what, revision, err) // nobody will answer
		default:
			unanswered = true
		}
		if pause == nil {
			pause = newPause()
		}
		if !wait(ctx, pause.NextBackOff()) {
			return 0, fail(job.ErrUnknown, err)
		}
	}
}

// judge finds out whose write stands where ours met a conflict. Settled with a
// revision: our own, an earlier copy of it. Settled without one: somebody
// else's. Not settled: what could be read explains no conflict, so that the
// reading was stale, or the write that we collided with came to nothing.
func judge(ctx context.Context, a asker, m *nats.Msg, revision uint64, met error) (won uint64, settled bool) {
	stored, err := a.get(ctx)
	switch {
	case errors.Is(err, errNothing):
		// Gone, if the conflict was not with a write that is still under way.
		return 0, revision > 0 && hasCode(met, jetstream.JSErrCodeStreamWrongLastSequence)
	case err != nil, stored.revision <= revision:
		return 0, false
	case stored.same(m):
		return stored.revision, true
	}
	return 0, true
}

// newPause is the rhythm of everything that is asked again. It never ends by
// itself: the caller's context does.
func newPause() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(10*time.Millisecond),
		backoff.WithMaxInterval(500*time.Millisecond),
		backoff.WithMaxElapsedTime(0))
}

// wait reports false when ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// kind sorts the broker's errors by what they say of the request.
type kind int

const (
	unanswered kind = iota // it may have been carried out, now or later
	conflict               // it named a revision that is not the last
	refused                // it was not carried out
)

func classify(err error) kind {
	for _, local := range []error{nats.ErrConnectionClosed, nats.ErrConnectionDraining, nats.ErrMaxPayload,
		nats.ErrBadSubject, nats.ErrHeadersNotSupported, jetstream.ErrInvalidOption} {
		if errors.Is(err, local) {
			return refused // it never left this process
		}
	}
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return unanswered
	}
	switch api.ErrorCode {
	case jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant:
		return conflict
	case codeStoreFailed:
		// A limit is checked before a write is proposed to the replicas; any
		// other failure to store may be the leader's alone.
		if strings.Contains(api.Description, "maximum") {
			return refused
		}
		return unanswered
	case codeIncomplete, codeNotAvailable, codeNotLeader, codePeerRemap, codeStreamOffline, codeStreamOfflineReason,
		codeInProcess, codeNotReady:
		return unanswered
	}
	return refused
}

// Codes of the server that nats.go has no name for.
const (
	codeIncomplete          jetstream.ErrorCode = 10004 // incomplete results
	codeNoPeers             jetstream.ErrorCode = 10005 // no suitable peers for placement
	codeNotAvailable        jetstream.ErrorCode = 10008 // the cluster has no leader now
	codeNotLeader           jetstream.ErrorCode = 10009
	codeNoReplicas          jetstream.ErrorCode = 10074 // replicas > 1 not supported in non-clustered mode
	codeNoResources         jetstream.ErrorCode = 10023 // insufficient resources
	codePeerRemap           jetstream.ErrorCode = 10075
	codeStoreFailed         jetstream.ErrorCode = 10077
	codeStreamOffline       jetstream.ErrorCode = 10118
	codeInProcess           jetstream.ErrorCode = 10158 // a copy with the same Msg-Id is in flight
	codeNotReady            jetstream.ErrorCode = 10163 // a new leader is not ready to compare revisions
	codeStreamOfflineReason jetstream.ErrorCode = 10194
)

func hasCode(err error, codes ...jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	for _, code := range codes {
		if api.ErrorCode == code {
			return true
		}
	}
	return false
}
