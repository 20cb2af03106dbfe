package wire

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/job"
)

// NewBackoff returns the backoff of all repeated requests. It has no end of its own: the
// caller's context ends it.
func NewBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(10*time.Millisecond), backoff.WithMaxInterval(500*time.Millisecond), backoff.WithMaxElapsedTime(0))
}

// Wait waits for d. It returns false if ctx ends first.
func Wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// kind is what an error means for a request.
type kind int

const (
	Unanswered kind = iota // the broker may have carried out the request, or may do so later
	conflict               // the request named a revision that is not the last one
	refused                // the broker did not carry out the request
)

// Classify returns what an error of the broker or of the client means for a request.
func Classify(err error) kind {
	for _, local := range []error{nats.ErrConnectionClosed, nats.ErrConnectionDraining, nats.ErrMaxPayload,
		nats.ErrBadSubject, nats.ErrHeadersNotSupported, jetstream.ErrInvalidOption} {
		if errors.Is(err, local) {
			return refused // the request did not leave this process, or its connection is closed for good
		}
	}
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return Unanswered
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
		return Unanswered
	case codeIncomplete, codeNotAvailable, codeNotLeader, codePeerRemap, codeStreamOffline, codeStreamOfflineReason,
		codeInProcess, codeNotReady:
		return Unanswered
	}
	return refused
}

// Server error codes for which nats.go has no name.
const (
	codeAccountFull         jetstream.ErrorCode = 10002 // resource limits exceeded for account
	codeNoStorage           jetstream.ErrorCode = 10047 // insufficient storage resources available
	codeIncomplete          jetstream.ErrorCode = 10004 // incomplete results
	CodeNoPeers             jetstream.ErrorCode = 10005 // no suitable peers for placement
	codeNotAvailable        jetstream.ErrorCode = 10008 // the cluster has no leader now
	codeNotLeader           jetstream.ErrorCode = 10009
	CodeNoReplicas          jetstream.ErrorCode = 10074 // replicas > 1 not supported in non-clustered mode
	CodeMaxStreams          jetstream.ErrorCode = 10027 // maximum number of streams reached
	codeMaxConsumers        jetstream.ErrorCode = 10026 // maximum consumers limit reached
	CodeMaxBytesRequired    jetstream.ErrorCode = 10113 // account requires a stream config to have max bytes set
	codeAckPending          jetstream.ErrorCode = 10121 // consumer max ack pending exceeds system limit of N
	codeNoResources         jetstream.ErrorCode = 10023 // insufficient resources
	codePeerRemap           jetstream.ErrorCode = 10075
	codeStoreFailed         jetstream.ErrorCode = 10077
	codeStreamOffline       jetstream.ErrorCode = 10118
	codeInProcess           jetstream.ErrorCode = 10158 // a copy with the same Msg-Id is in flight
	codeNotReady            jetstream.ErrorCode = 10163 // a new leader is not ready to compare revisions
	codeStreamOfflineReason jetstream.ErrorCode = 10194
)

// AckPendingLimit returns the limit of unacked messages for which the server has refused a consumer, or 0 if err
// is something else.
func AckPendingLimit(err error) int {
	var api *jetstream.APIError
	if !errors.As(err, &api) || api.ErrorCode != codeAckPending {
		return 0
	}
	limit, _ := strconv.Atoi(api.Description[strings.LastIndexByte(api.Description, ' ')+1:])
	return limit
}

// HasCode reports whether err is an error of the server with one of the codes.
func HasCode(err error, codes ...jetstream.ErrorCode) bool {
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

// IsFull reports whether the server refused a request because a resource or a limit was used up. It may
// carry out the same request later.
func IsFull(err error) bool {
	return HasCode(err, codeAccountFull, codeNoStorage, codeMaxConsumers, codeNoResources, CodeNoPeers)
}

// The server does not answer a request that it does not permit. It reports a permission
// violation to the connection's error handler, and the link keeps these reports.

// deniedError reports a request that the server will not answer. It also wraps job.ErrUnknown,
// because the report does not say which copy of the request the server denied.
type deniedError struct{ complaint, err error }

func (e *deniedError) Error() string {
	return job.ErrDenied.Error() + ": " + strings.TrimPrefix(e.complaint.Error(), nats.ErrPermissionViolation.Error()+": ")
}

func (e *deniedError) Unwrap() []error {
	return []error{job.ErrDenied, job.ErrUnknown, e.complaint, e.err}
}

// WithComplaints adds to err the complaints of the server since began, when the request started.
// The result is job.ErrDenied if a complaint names the request's subject. A success stays one: the
// complaints since began may be about other requests.
func (w Wire) WithComplaints(subject string, began time.Time, err error) error {
	if err == nil || Classify(err) != Unanswered {
		return err
	}
	switch about, any := w.Link().ComplaintSince(began, subject); {
	case about != nil:
		return &deniedError{about, err}
	case any != nil:
		return errors.Join(err, any)
	default:
		return err
	}
}
