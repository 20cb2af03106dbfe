package kv

import (
	"context"
	"time"

	"github.com/cronce-io/cronce/job"
	"github.com/nats-io/nats.go"
)

// Send is Write for those who do not wait: answered is told what Write returns, once
// and by any goroutine, the caller's included. It must not block: the answers to all
// other writes of the process wait for it.
func (l *Ledger) Send(ctx context.Context, r job.Record, revision uint64, answered func(uint64, error)) {
	s := l.b.pipe.sending()
	s.keyAsker, s.ctx, s.revision, s.began, s.told = keyAsker{l.b, r.Slot.Key()}, ctx, revision, time.Now(), answered
	data, err := r.AppendJSON(s.msg.Data[:0])
	s.msg.Data, s.msg.Header = data, recordHeader(s.msg.Header, r)
	if err = l.b.storable(s.key, r.Nonce, err); err == nil {
		err = l.b.address(s.key, s.msg)
	}
	if err != nil {
		answered(0, err)
		return
	}
	expect(s.msg, l.b.stream(), revision)
	l.b.pipe.ask(ctx, s.msg, s.answered)
}

// sending is a record that was sent, and who is to be told of the answer. Most are
// settled by the answer to their first copy. Then nothing looks at the message any
// more, and its header and body are used again: to make them anew was a third of what
// a slot had to allocate.
type sending struct {
	keyAsker
	ctx      context.Context //nolint:containedctx // it is looked at until the write is settled
	msg      *nats.Msg
	revision uint64
	began    time.Time
	told     func(uint64, error)

	answered func(*nats.Msg, error) // answer, made once
}

func (p *pipe) sending() *sending {
	if s, ok := p.settled.Get().(*sending); ok {
		return s
	}
	s := &sending{msg: &nats.Msg{Header: nats.Header{}}}
	s.answered = s.answer
	return s
}

// answer is told what was answered to the first copy. A write that is not settled by
// that goes on, on a goroutine that ends with its context.
func (s *sending) answer(m *nats.Msg, err error) {
	won, err := s.stored(s.msg, m, err)
	if err != nil {
		go func() {
			s.told(settle(s.ctx, s.keyAsker, s.name+"/"+s.key, s.msg, s.revision, s.began, 0, s.explain(s.msg, err)))
		}()
		return
	}
	told := s.told
	clear(s.msg.Header)
	s.ctx, s.told = nil, nil
	s.pipe.settled.Put(s)
	told(won, nil)
}
