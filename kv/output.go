package kv

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

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
