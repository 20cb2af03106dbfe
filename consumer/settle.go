package consumer

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// verdict is what becomes of a message. Exactly one of the constructors below
// makes it, and settle alone acts on it.
type verdict struct {
	kind   verdictKind
	delay  time.Duration
	reason string
}

type verdictKind int

const (
	silence verdictKind = iota
	ack
	later
	drop
	open
)

// pending: a write is on its way, and its answer leads to the verdict. Whoever gets
// this has handed the slot over.
func pending() verdict { return verdict{kind: open} }

// done: the slot has its outcome, in a durable record.
func done() verdict { return verdict{kind: ack} }

// after: the message is wanted again, no sooner than d from now.
func after(d time.Duration) verdict { return verdict{kind: later, delay: d} }

// dropped: the message is no slot, and nobody can make anything of it.
func dropped(reason string) verdict { return verdict{kind: drop, reason: reason} }

// silent: somebody else's word counts now. An ack does not fence: from a worker
// that lost its claim it would take the message from under the new owner.
func silent() verdict { return verdict{kind: silence} }

// settle is the only place that answers the broker about a message (invariant
// 6: an ack comes after a durable record, and from nobody who lost a claim). The
// answers are not waited for: one that is lost brings the message again, and the
// record says what became of it.
func (c *Consumer) settle(msg jetstream.Msg, v verdict) {
	var err error
	switch v.kind {
	case silence:
		return
	case ack:
		err = msg.Ack()
	case later:
		if v.delay <= 0 {
			err = msg.Nak()
		} else {
			err = msg.NakWithDelay(v.delay)
		}
	case drop:
		c.cfg.Logger.Error("a message in the slot stream is no slot; dropped", "subject", msg.Subject(), "reason", v.reason)
		err = msg.TermWithReason(v.reason)
	}
	if err != nil {
		c.cfg.Logger.Debug("answer to the broker was not sent; the message comes again", "subject", msg.Subject(), "error", err)
	}
}
