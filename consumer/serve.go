package consumer

import (
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/job"
)

// tooMany is how long a message is given back for that there is no place for.
const tooMany = 100 * time.Millisecond

// serve takes one delivered message from its receipt to its verdict. turn says when
// it may be claimed.
func (c *Consumer) serve(msg jetstream.Msg, turn chan struct{}) {
	meta, err := msg.Metadata()
	if err != nil {
		meta = &jetstream.MsgMetadata{} // no message of a queue at all
	}
	holding := c.held.add(msg, meta.Timestamp)
	defer c.held.remove(holding)
	if !c.places.wait(turn, c.stopping) {
		c.settle(msg, after(tooMany))
		return
	}
	place := newPlace(c.places)
	defer place.end()
	if err != nil {
		c.settle(msg, dropped(err.Error()))
		return
	}
	if c.isStopping() {
		c.settle(msg, after(tooMany)) // it must not come back to the last request
		return
	}
	m, err := job.ParseMessage(msg.Headers())
	if err == nil {
		err = m.CheckSubject(msg.Subject())
	}
	if err != nil {
		c.settle(msg, c.unreadable(msg, meta, err))
		return
	}
	d := job.Delivery{Message: m, Queue: c.cfg.Queue, Payload: msg.Data(), Published: meta.Timestamp, Count: int(meta.NumDelivered)}
	key := d.Slot.Key()
	owner, ours := c.cfg.Table.take(key, c.cfg.Node.Name())
	switch {
	case ours:
		t := task{Consumer: c, d: d, msg: msg, place: place}
		t.settle(t.decide())
	case owner == c.cfg.Node.Name():
		c.settle(msg, silent()) // ours, redelivered: its first copy is in hand
	default:
		// An older incarnation's handler has not returned.
		c.settle(msg, after(c.cfg.Lease/4))
	}
}

// unreadable is the verdict on a message that this program cannot read. A newer
// one may: it is given back, until it is older than any slot may be. One that
// contradicts itself is no slot for any program, and is dropped at once.
func (c *Consumer) unreadable(msg jetstream.Msg, meta *jetstream.MsgMetadata, why error) verdict {
	if errors.Is(why, job.ErrContradicts) || c.cfg.Now().Sub(meta.Timestamp) > c.cfg.Horizon {
		return dropped(why.Error())
	}
	c.cfg.Logger.Warn("a message cannot be read here; left for a newer node", "subject", msg.Subject(), "error", why)
	return after(min(time.Second<<min(meta.NumDelivered, 10), time.Minute))
}
