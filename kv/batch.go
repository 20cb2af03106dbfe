package kv

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Sizes of an atomic batch. On a server that syncs each write, a batch costs about as
// much as 25 single writes, so smaller sets are sent singly. The server accepts at most
// 1,000 messages in a batch.
const (
	minBatch      = 25
	maxBatch      = 500
	maxBatchBytes = 1 << 20
)

// Headers of an atomic batch (ADR-50 of NATS).
const (
	headerBatchID     = "Nats-Batch-Id"
	headerBatchSeq    = "Nats-Batch-Sequence"
	headerBatchCommit = "Nats-Batch-Commit"
)

// Codes with which the server rejects a whole batch. It then stores no part of it.
const (
	codeBatchDisabled   jetstream.ErrorCode = 10174
	codeBatchIncomplete jetstream.ErrorCode = 10176
	codeBatchTooLarge   jetstream.ErrorCode = 10199
	codeBatchTooMany    jetstream.ErrorCode = 10210
)

// errNoBatch means that the server does not support batches. It stored all or some of the
// messages one by one, and answered only the last.
var errNoBatch = errors.New("the server did not store the messages as a batch")

// writeBatch sends several writes to one bucket as one question. The server stores all of
// them or none, each only at its own revision, and syncs its disk once.
//
// A batch settles its writes only if it succeeds. If it is refused or gets no answer,
// each write is sent again as a question of its own, with the same bytes at the same
// revision. If the server stored the batch but its answer was lost, or stores it later,
// the single copy gets a conflict and recognises its own value, as after any lost answer.
// The server stores at most one copy of a write, because each copy names the revision
// that it replaces.
type writeBatch struct {
	question

	id     string
	writes []*writing
}

// sendAll sends prepared writes of the bucket. It uses atomic batches if the stream
// allows them and there are enough writes. Each write reports its own result.
func (b bucket) sendAll(ctx context.Context, writes []*writing) {
	for len(writes) > 0 {
		n, size := 0, 0
		for n < min(len(writes), maxBatch) && (n == 0 || size+len(writes[n].data) <= maxBatchBytes) {
			size += len(writes[n].data)
			n++
		}
		part := writes[:n]
		writes = writes[n:]
		if !b.atomic || n < minBatch {
			for _, w := range part {
				b.transport.ask(&w.question)
			}
			continue
		}
		g := &writeBatch{id: rand.Text(), writes: part}
		g.asker, g.ctx, g.once, g.endsDenied, g.before = g, ctx, true, b.tellDenied, g.sendParts
		b.transport.ask(&g.question)
	}
}

func (g *writeBatch) last() *writing { return g.writes[len(g.writes)-1] }

// sendParts sends all messages of the batch except the last. The question itself is the
// last.
func (g *writeBatch) sendParts(send func(*nats.Msg) error) error {
	for i := range g.writes[:len(g.writes)-1] {
		m := g.part(i)
		if err := send(&m); err != nil {
			return err
		}
	}
	return nil
}

// part returns message i of the batch. It copies the header of the write, because a
// single copy may still be sent with the original header.
func (g *writeBatch) part(i int) nats.Msg {
	w := g.writes[i]
	header := make(nats.Header, len(w.header)+3)
	for name, values := range w.header {
		header[name] = values
	}
	header[headerBatchID], header[headerBatchSeq] = []string{g.id}, []string{strconv.Itoa(i + 1)}
	return nats.Msg{Subject: w.to, Header: header, Data: w.data}
}

func (g *writeBatch) subject() string { return g.last().to }

// compose builds the last message, which commits the batch.
func (g *writeBatch) compose(m *nats.Msg) {
	last := g.part(len(g.writes) - 1)
	last.Header[headerBatchCommit] = []string{"1"}
	m.Subject, m.Header, m.Data = last.Subject, last.Header, last.Data
}

// answer settles all writes if the batch was stored. Otherwise it sends each write
// singly.
func (g *writeBatch) answer(m *nats.Msg, err error) {
	last, err := g.stored(m, err)
	if err == nil {
		for i, w := range g.writes {
			w.told(last-uint64(len(g.writes)-1-i), nil) // the server stores a batch without gaps
		}
		return
	}
	refused := classify(err) == conflict || hasCode(err, codeBatchDisabled, codeBatchIncomplete, codeBatchTooLarge, codeBatchTooMany)
	for _, w := range g.writes {
		if !refused {
			w.doubt, w.met = true, err
		}
		w.transport.ask(&w.question)
	}
}

// stored returns the revision of the batch's last write.
func (g *writeBatch) stored(m *nats.Msg, err error) (uint64, error) {
	if err != nil {
		return 0, err
	}
	a, err := pubAck(m)
	switch {
	case err != nil:
		return 0, err
	case a.batch != g.id || a.count != len(g.writes):
		return 0, errNoBatch
	}
	return a.seq, g.last().misplaced(g.subject, a.domain)
}
