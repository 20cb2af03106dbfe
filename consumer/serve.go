package consumer

import (
	"errors"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// tooMany is how long a message is given back for that there is no place for.
const tooMany = 100 * time.Millisecond

// receive takes in one delivered message, and does not block. turn says when it may
// be claimed; nil: now.
//
// The slot has a goroutine only while something is done that may take its time: while
// its claim and its outcome are on their way nobody waits for them, and their answers
// go on with it. Most slots have one for their handler.
func (c *Consumer) receive(msg jetstream.Msg) {
	c.slots.Add(1)
	t := &task{Consumer: c, msg: msg}
	defer t.recovered()
	t.unread = t.read()
	c.held.add(&t.holding, msg, c.cfg.Now().Sub(t.d.Published))
	if c.isStopping() || c.limiter.admit(t) {
		t.start()
	}
}

// start begins the slot of a message, or gives it back if it was not admitted. It does
// not block. What needs a goroutine needs a place first.
func (t *task) start() {
	defer t.recovered()
	switch {
	case t.unread == nil && (t.placed || t.ahead) && t.begin(t.cfg.Now()):
	case t.ahead && !t.limiter.place(t): // it is resumed
	default:
		t.do(t.serve)
	}
}

// resume goes on with a task that has waited for a place, whether it got one or not.
func (t *task) resume() {
	if t.fence != 0 {
		t.crew.run(t)
		return
	}
	t.start()
}

// read reads the message.
func (t *task) read() error {
	meta, err := t.msg.Metadata()
	if err != nil {
		return err // no message of a queue at all
	}
	t.d = core.Delivery{Queue: t.cfg.Queue, Payload: t.msg.Data(), Published: meta.Timestamp, Count: int(min(meta.NumDelivered, math.MaxInt32))}
	if t.d.Message, err = core.ParseMessage(t.msg.Headers()); err != nil {
		return err
	}
	return t.d.CheckSubject(t.msg.Subject())
}

// serve takes a message from its receipt to its verdict, unless it begins.
func (t *task) serve() verdict {
	switch owner, self := "", t.cfg.Node.Name(); {
	case !t.placed, t.isStopping():
		return after(tooMany) // it must not come back to the last request
	case t.unread != nil:
		return t.unreadable(t.unread)
	case t.owe(&owner):
		return t.decide()
	case owner == self:
		return silent() // ours, redelivered: its first copy is in hand
	default:
		// An older incarnation's handler has not returned.
		return after(t.cfg.Lease / 4)
	}
}

// owe enters the slot in the table of obligations, unless it is there: then it says
// who owes it.
func (t *task) owe(owner *string) bool {
	t.key = t.d.Slot.Key()
	*owner, t.owed = t.cfg.Table.take(t.key, t.cfg.Node.Name())
	return t.owed
}

// unreadable is the verdict on a message that this program cannot read. A newer
// one may: it is given back, until it is older than any slot may be. One that
// contradicts itself is no slot for any program, and is dropped at once.
func (t *task) unreadable(why error) verdict {
	if errors.Is(why, job.ErrContradicts) || t.cfg.Now().Sub(t.d.Published) > t.horizon() {
		return dropped(why.Error())
	}
	if t.d.Count <= 2 { // it may come back for a day
		t.cfg.Logger.Warn("a message cannot be read here; left for a newer node", "subject", t.msg.Subject(), "error", why, "list all", "cronce doctor")
	}
	return after(min(time.Second<<min(t.d.Count, 10), time.Minute))
}

// horizon is the age past which slots end. There is none while the clock is not
// believed.
func (c *Consumer) horizon() time.Duration {
	if c.cfg.Plausible() != nil {
		return math.MaxInt64
	}
	return c.cfg.Horizon
}
