package kv

import (
	"sync"

	"github.com/nats-io/nats.go"
)

// outbox hands messages to the connection, one goroutine at a time. The connection
// has a lock, which is also held while bytes go to the socket: hundreds of slots that
// publish would each wait for it in line, and be woken one by one for it, which took
// a drain more time than all else.
//
// Whoever finds nobody at it hands over what there is, its own message first; who
// finds somebody leaves its message with them. Messages leave in the order in which
// they came. It is safe for concurrent use.
type outbox struct {
	conn *nats.Conn

	// failed is told of each message with an ID that could not be handed over.
	failed func(id uint64, err error)

	mu    sync.Mutex
	queue []outgoing
	spare []outgoing // an empty one, to be used again
	busy  bool       // somebody is at it
}

// outgoing is one message.
type outgoing struct {
	subject, reply string
	header         nats.Header // not written to any more
	data           []byte

	// id says that somebody waits for its answer. Zero: it is not kept for a broker
	// that is away longer than the connection does by itself.
	id uint64
}

// send returns an error only if it was this caller who handed the message over.
func (o *outbox) send(m outgoing) error {
	o.mu.Lock()
	o.queue = append(o.queue, m)
	if o.busy {
		o.mu.Unlock()
		return nil
	}
	o.busy = true
	o.mu.Unlock()
	more, err := o.some()
	if more {
		go func() { // the caller has something else to do
			for more {
				more, _ = o.some()
			}
		}()
	}
	return err
}

// some hands over what there is. It returns what became of the first message, and
// whether more have come meanwhile; if not, nobody is at it any more.
func (o *outbox) some() (more bool, first error) {
	o.mu.Lock()
	batch := o.queue
	o.queue, o.spare = o.spare, nil
	o.mu.Unlock()
	for i, m := range batch {
		err := o.hand(m)
		if err != nil && m.id != 0 {
			o.failed(m.id, err)
		}
		if i == 0 {
			first = err
		}
	}
	clear(batch)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spare = batch[:0]
	o.busy = len(o.queue) > 0
	return o.busy, first
}

func (o *outbox) hand(m outgoing) error {
	if m.id != 0 && !o.conn.IsConnected() {
		// A client that buffers while it is away would send this long after
		// the writer has given up: a claim for a node that is dead by then.
		return nats.ErrDisconnected
	}
	return o.conn.PublishMsg(&nats.Msg{Subject: m.subject, Reply: m.reply, Header: m.header, Data: m.data})
}
