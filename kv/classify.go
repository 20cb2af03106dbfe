package kv

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

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
	codeAccountFull         jetstream.ErrorCode = 10002 // resource limits exceeded for account
	codeNoStorage           jetstream.ErrorCode = 10047 // insufficient storage resources available
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
