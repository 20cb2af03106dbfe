package kv

import (
	"context"
	"strconv"
	"time"

	"github.com/cronce-io/cronce/job"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Send is Write for those who do not wait: answered is told what Write returns, once
// and by any goroutine, the caller's included. It must not block: the answers to all
// other writes of the process wait for it.
func (l *Ledger) Send(ctx context.Context, r job.Record, revision uint64, answered func(uint64, error)) {
	s := l.b.sending(ctx, r.Slot.Key(), revision, answered)
	data, err := r.AppendJSON(s.msg.Data[:0])
	recordHeader(r, s.set)
	s.send(data, r.Nonce, err)
}

// Send is Write as Ledger.Send is that of a record.
func (l *Locks) Send(ctx context.Context, lock job.Lock, revision uint64, answered func(uint64, error)) {
	s := l.b.sending(ctx, lockKey(lock.Job), revision, answered)
	data, err := lock.AppendJSON(s.msg.Data[:0])
	s.send(data, lock.Nonce, err)
}

// sending is a value that was sent, and who is to be told of the answer. Most are
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

	// values are those of the message's header, a slice of one each.
	values [5]string

	answered func(*nats.Msg, error) // answer, made once
}

// sending is an empty message to a key, to be sent at revision.
func (b bucket) sending(ctx context.Context, key string, revision uint64, told func(uint64, error)) *sending {
	s, ok := b.pipe.settled.Get().(*sending)
	if !ok {
		s = &sending{msg: &nats.Msg{Header: nats.Header{}}}
		s.answered = s.answer
	}
	s.keyAsker, s.ctx, s.revision, s.began, s.told = keyAsker{b, key}, ctx, revision, time.Now(), told
	return s
}

// send sends the value, which carries the nonce, unless it could not be encoded.
func (s *sending) send(data []byte, nonce string, failed error) {
	s.msg.Data = data
	err := s.storable(s.key, nonce, failed)
	if err == nil {
		err = s.address(s.key, s.msg)
	}
	if err != nil {
		s.told(0, err)
		return
	}
	s.set(jetstream.ExpectedStreamHeader, s.stream())
	s.set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(s.revision, 10))
	s.pipe.ask(s.ctx, s.msg, s.answered)
}

// set adds one of the five headers that a value has at most.
func (s *sending) set(name, value string) {
	n := len(s.msg.Header)
	s.values[n] = value
	s.msg.Header[name] = s.values[n : n+1 : n+1]
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
