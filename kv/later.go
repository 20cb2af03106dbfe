package kv

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/job"
)

// noNodeWait is how long AskLater waits for a node that answers, such as one that starts.
const noNodeWait = 5 * time.Second

// AskLater asks the nodes to trigger a job later, and returns the answer of one of them. It repeats the
// request until a node answers or ctx ends, so the request needs a key. If ctx ends, the error wraps
// job.ErrUnknown. If a node refuses the request, the error says why.
func (s *Store) AskLater(ctx context.Context, name string, request []byte) ([]byte, error) {
	subject, pause := layout.LaterSubject(s.Namespace, name), wire.NewBackoff()
	for began := time.Now(); ; {
		attempted := time.Now()
		reply, err := s.firstReply(ctx, layout.LaterReplies(s.Namespace, name), subject, request)
		if err == nil {
			if err = refusedBy(reply); err == nil {
				return reply.Data, nil
			} else if !errors.Is(err, job.ErrUnknown) {
				return nil, err
			}
		}
		err = s.WithComplaints(subject, attempted, err)
		switch {
		case errors.Is(err, job.ErrDenied):
			return nil, err
		case errors.Is(err, nats.ErrNoResponders) && time.Since(began) > noNodeWait:
			return nil, fmt.Errorf("no node answers whose login may set timers: start one with the login of a producer: %w", err)
		case !wire.Wait(ctx, pause.NextBackOff()):
			return nil, fmt.Errorf("%w: %w", job.ErrUnknown, err)
		}
	}
}

// refusedBy returns the error that a node's answer reports, or nil.
func refusedBy(answer *nats.Msg) error {
	text := answer.Header.Get(micro.ErrorHeader)
	if text == "" {
		return nil
	}
	code, _ := strconv.Atoi(answer.Header.Get(micro.ErrorCodeHeader))
	err := map[int]error{
		http.StatusBadRequest: job.ErrInvalid, http.StatusForbidden: job.ErrDenied, http.StatusNotFound: job.ErrNotFound,
		http.StatusConflict: job.ErrConflict, http.StatusGatewayTimeout: job.ErrUnknown,
	}[code]
	if err == nil {
		return errors.New(text)
	}
	return refusal{text, err}
}

// refusal is the error of a node, whose text names the kind already.
type refusal struct {
	text string
	kind error
}

func (r refusal) Error() string { return r.text }

func (r refusal) Unwrap() error { return r.kind }
