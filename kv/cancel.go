package kv

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/cronce-io/cronce/job"
	"github.com/nats-io/nats.go"
)

func (s *Store) cancelSubject(node string) string { return s.namespace + ".node." + node + ".cancel" }

// AskCancel asks a node, once, to end a slot that it runs; see job.CancelRequest.
// An answer that does not come within a second, or nobody there to give one, is
// job.ErrUnknown: the request may have been heard.
func (s *Store) AskCancel(ctx context.Context, node string, req job.CancelRequest) (job.CancelAnswer, error) {
	if err := job.ValidateName("node", node); err != nil {
		return job.CancelAnswer{}, err
	}
	req.V = job.Version
	data, err := json.Marshal(req)
	if err != nil {
		return job.CancelAnswer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	reply, err := s.conn().RequestWithContext(ctx, s.cancelSubject(node), data)
	if err != nil {
		return job.CancelAnswer{}, fmt.Errorf("ask node %s to end %s: %w: %w", node, req.ID, job.ErrUnknown, s.because(s.cancelSubject(node), err))
	}
	var answer job.CancelAnswer
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return answer, fmt.Errorf("ask node %s to end %s: %w answer: %w", node, req.ID, job.ErrInvalid, err)
	}
	if answer.Error != "" {
		err = fmt.Errorf("node %s will not end %s: %s", node, req.ID, answer.Error)
	}
	return answer, err
}

// ServeCancel answers the requests of AskCancel for a node, until the returned
// function is called. f gets the slot's key and the claim that is meant, and
// says whether that attempt's context has ended for the cause; it must not block.
func (s *Store) ServeCancel(node string, f func(key string, fence uint64, cause error) bool) (stop func(), err error) {
	sub, err := s.conn().Subscribe(s.cancelSubject(node), func(m *nats.Msg) {
		answer := job.CancelAnswer{V: job.Version}
		slot, req, err := job.DecodeCancel(m.Data)
		if err != nil {
			answer.Error = err.Error()
		} else {
			answer.Ending = f(slot.Key(), req.Fence, req.Cause())
		}
		if data, err := json.Marshal(answer); err == nil && m.Reply != "" {
			_ = m.Respond(data) // who hears nothing asks again
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", s.cancelSubject(node), err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}
