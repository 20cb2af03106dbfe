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

// newPause returns the backoff of all repeated requests. It has no end of its own: the
// caller's context ends it.
func newPause() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(10*time.Millisecond),
		backoff.WithMaxInterval(500*time.Millisecond),
		backoff.WithMaxElapsedTime(0))
}

// wait returns false if ctx ends before d has passed.
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

// kind says what an error of the broker means for the request.
type kind int

const (
	unanswered kind = iota // the broker may have carried it out, or may do so later
	conflict               // it named a revision that is not the last one
	refused                // the broker did not carry it out
)

func classify(err error) kind {
	for _, local := range []error{nats.ErrConnectionClosed, nats.ErrConnectionDraining, nats.ErrMaxPayload,
		nats.ErrBadSubject, nats.ErrHeadersNotSupported, jetstream.ErrInvalidOption} {
		if errors.Is(err, local) {
			return refused // the request never left this process
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
		// The server checks limits before it proposes a write to the replicas. Any other
		// storage failure may concern the leader alone.
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

// Server error codes for which nats.go has no name.
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
