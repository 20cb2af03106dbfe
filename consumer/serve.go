package consumer

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/job"
)

// serve takes one delivered message from its receipt to its verdict. free gives
// its place back.
func (c *Consumer) serve(msg jetstream.Msg, free func()) {
	c.held.add(msg)
	defer c.held.remove(msg)
	if c.isStopping() {
		// It came while the last request ran out, and must not come back to it.
		c.settle(msg, after(100*time.Millisecond))
		return
	}
	d, err := c.delivery(msg)
	if err != nil {
		c.settle(msg, c.unreadable(msg, err))
		return
	}
	key := d.Slot.Key()
	owner, ours := c.cfg.Table.take(key, c.cfg.Node.Name())
	switch {
	case ours:
		t := task{Consumer: c, d: d, free: free}
		c.settle(msg, t.decide())
		if t.final && t.entered {
			t.leave()
		}
		c.cfg.Table.end(key)
	case owner == c.cfg.Node.Name():
		c.settle(msg, silent()) // ours, redelivered: its first copy is in hand
	default:
		// An older incarnation's handler has not returned.
		c.settle(msg, after(c.cfg.Lease/4))
	}
}

// delivery reads the message's headers and the broker's word on it.
func (c *Consumer) delivery(msg jetstream.Msg) (job.Delivery, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return job.Delivery{}, err
	}
	m, err := job.ParseMessage(msg.Headers())
	if err != nil {
		return job.Delivery{}, err
	}
	return job.Delivery{Message: m, Queue: c.cfg.Queue, Payload: msg.Data(), Published: meta.Timestamp, Count: int(meta.NumDelivered)}, nil
}

// unreadable is the verdict on a message that this program cannot read. A newer
// one may: it is given back, until it is older than any slot may be.
func (c *Consumer) unreadable(msg jetstream.Msg, why error) verdict {
	meta, err := msg.Metadata()
	if err != nil {
		return dropped(err.Error()) // no message of a queue at all
	}
	if c.cfg.Now().Sub(meta.Timestamp) > c.cfg.Horizon {
		return dropped(why.Error())
	}
	c.cfg.Logger.Warn("a message cannot be read here; left for a newer node", "subject", msg.Subject(), "error", why)
	return after(min(time.Second<<min(meta.NumDelivered, 10), time.Minute))
}
