package kv

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

func (s *Store) cancelSubject(node string) string { return s.Namespace + ".node." + node + ".cancel" }

// AskCancel asks a node, once, to cancel a slot that it runs; see core.CancelRequest. If
// no answer comes within a second, the error wraps job.ErrUnknown: the node may have
// received the request. If the node refuses the request, the error says why.
func (s *Store) AskCancel(ctx context.Context, node string, req core.CancelRequest) (core.CancelAnswer, error) {
	req.V = codec.Version
	answer, err := ask(ctx, s, node, s.cancelSubject(node), "to end "+req.ID, req, core.DecodeCancelAnswer)
	if err == nil && answer.Error != "" {
		err = fmt.Errorf("node %s refused to end %s: %s", node, req.ID, answer.Error)
	}
	return answer, err
}

// ask sends a request to a node, once, and decodes the answer. If none comes within a second,
// the error wraps job.ErrUnknown. Its errors begin with "ask node NAME " and the text of the
// parameter what.
func ask[T any](ctx context.Context, s *Store, node, subject, what string, request any, decode func([]byte) (T, error)) (answer T, err error) {
	if err := codec.ValidateName("node", node); err != nil {
		return answer, err
	}
	data, err := json.Marshal(request)
	if err != nil {
		return answer, err
	}
	began := time.Now()
	reply, err := s.firstReply(ctx, layout.ReplyPrefix(s.Namespace), subject, data)
	if err != nil {
		err = fmt.Errorf("%w: %w", job.ErrUnknown, s.WithComplaints(subject, began, err))
	} else {
		answer, err = decode(reply.Data)
	}
	if err != nil {
		err = fmt.Errorf("ask node %s %s: %w", node, what, err)
	}
	return answer, err
}

// firstReply sends a request with a reply subject below prefix, to which nodes may publish, and returns
// the first reply.
func (s *Store) firstReply(ctx context.Context, prefix, subject string, data []byte) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.AttemptTimeout)
	defer cancel()
	reply, answers := prefix+"."+rand.Text(), make(chan *nats.Msg, 1)
	stop, err := s.Listen(reply, func(m *nats.Msg) { core.TrySend(answers, m) })
	if err != nil {
		return nil, err
	}
	defer stop()
	s.Transport.Publish(subject, reply, data, time.Now().Round(0).Add(wire.AttemptTimeout))
	select {
	case m := <-answers:
		if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
			return nil, nats.ErrNoResponders
		}
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// AskHolds asks a live node, once, whether it holds the claim of the slot's record at
// revision claim; see exchange.HoldsAnswer. If no usable answer comes within a second, the
// error wraps job.ErrUnknown.
func (s *Store) AskHolds(ctx context.Context, node string, slot job.Slot, claim uint64) (exchange.HoldsAnswer, error) {
	request := exchange.HoldsRequest{V: codec.Version, ID: slot.ID(), Claim: claim}
	return ask(ctx, s, node, s.cancelSubject(node), "about "+slot.ID(), request, exchange.DecodeHoldsAnswer)
}

// Claims is the set of claims that a process holds. consumer.Table implements it. Its
// methods must not block.
type Claims interface {
	// Cancel cancels the context of the attempt with this fence, with the given cause. It
	// reports whether a cancellation, this or an earlier one, has ended the context (see
	// core.IsCancellation).
	Cancel(key string, fence uint64, cause error) bool

	// Holds reports whether the process still has work to do for the slot (holds), and
	// whether its handler still runs although the handler's context has ended, or its result
	// cannot be recorded (ended).
	Holds(key string) (holds, ended bool)
}

// ServeClaims answers the requests of AskCancel and AskHolds for a node until stop is
// called.
func (s *Store) ServeClaims(node string, claims Claims) (stop func(), err error) {
	return s.Listen(s.cancelSubject(node), func(m *nats.Msg) {
		if slot, ok := exchange.DecodeHolds(m.Data); ok {
			answer := exchange.HoldsAnswer{V: codec.Version}
			answer.Holds, answer.Ended = claims.Holds(slot.Key())
			s.respond(m, answer)
			return
		}
		answer := core.CancelAnswer{V: codec.Version}
		slot, req, err := core.DecodeCancel(m.Data)
		if err != nil {
			answer.Error = err.Error()
		} else {
			answer.Ending = claims.Cancel(slot.Key(), req.Fence, req.Cause())
		}
		s.respond(m, answer)
	})
}

// respond answers a request. If the answer is lost, AskCancel or AskHolds fails with
// job.ErrUnknown.
func (s *Store) respond(m *nats.Msg, answer any) {
	if data, err := json.Marshal(answer); err == nil && m.Reply != "" {
		s.Transport.Publish(m.Reply, "", data, time.Time{})
	}
}

func (s *Store) outputSubject(node string) string { return s.Namespace + ".node." + node + ".output" }

// AskOutput asks a node, once, what the attempt of a slot that it runs has reported so far; see
// exchange.OutputRequest. If no answer comes within a second, the error wraps job.ErrUnknown:
// the node does not answer, or runs a version that does not know this request.
func (s *Store) AskOutput(ctx context.Context, node string, slot job.Slot, follow bool) (exchange.OutputAnswer, error) {
	request := exchange.OutputRequest{V: codec.Version, ID: slot.ID(), Follow: follow}
	return ask(ctx, s, node, s.outputSubject(node), "for the output of "+slot.ID(), request, exchange.DecodeOutputAnswer)
}

// Outputs gives access to what the handlers of a process have reported. consumer.Table
// implements it. The method must not block.
type Outputs interface {
	Output(key string, follow bool) exchange.OutputAnswer
}

// ServeOutput answers the requests of AskOutput for a node until stop is called.
func (s *Store) ServeOutput(node string, outputs Outputs) (stop func(), err error) {
	return s.Listen(s.outputSubject(node), func(m *nats.Msg) {
		if m.Reply == "" {
			return
		}
		var answer exchange.OutputAnswer
		slot, req, err := exchange.DecodeOutputRequest(m.Data)
		if err != nil {
			answer.Error = err.Error()
		} else {
			answer = outputs.Output(slot.Key(), req.Follow)
		}
		answer.V = codec.Version
		if data, err := exchange.MarshalOutputAnswer(answer, s.Room()); err == nil {
			s.Transport.Publish(m.Reply, "", data, time.Time{})
		}
	})
}
