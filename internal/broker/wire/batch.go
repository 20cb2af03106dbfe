package wire

import (
	"crypto/rand"
	"errors"
	"maps"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/job"
)

// Sizes of an atomic batch. On a server that syncs each write, a batch costs about as
// much as minBatch single writes, so smaller sets are sent singly. The server accepts at most
// 1,000 messages in a batch.
const (
	minBatch      = 25
	maxBatch      = 1000
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
	codeBatchDuplicate  jetstream.ErrorCode = 10201 // it has a message ID that the stream knows
	codeBatchTooMany    jetstream.ErrorCode = 10210
)

// errNoBatch means that the server does not support batches. It stored all or some of the
// messages one by one, and answered only the last.
var errNoBatch = errors.New("the server did not store the messages as a batch")

// Member is a question that can travel in a batch. Writing is one, and so is a publication.
// Its Compose builds the same message in a batch and singly.
type Member interface {
	Asker
	question() *Question // any type that embeds a Question has it

	// Size returns the length of its body.
	Size() int

	// Stored settles the question: the server stored the batch, and this message at the sequence.
	Stored(sequence uint64)

	// Unstored is called after a batch that settled nothing. unanswered is true if the batch got no
	// answer, so that the server may have stored it, or may do so later.
	Unstored(err error, unanswered bool)
}

func (q *Question) question() *Question { return q }

// batch sends several messages to one stream as one question. The server stores all of them or
// none, each write only at its own revision, and syncs its disk once.
//
// A batch settles its members only if it succeeds. If it is refused or gets no answer,
// each write is sent again as a question of its own, with the same bytes at the same
// revision. If the server stored the batch but its answer was lost, or stores it later,
// the single copy gets a conflict and recognises its own value, as after any lost answer.
// The server stores at most one copy of a write, because each copy names the revision
// that it replaces. Publications have message IDs in place of revisions; the server drops a
// second copy.
type batch struct {
	Question

	Wire
	id     string
	all    []Member
	header nats.Header // of the last message that was built; see part
}

// SendAll sends prepared writes of the bucket. It uses atomic batches if the stream
// allows them and there are enough writes. Each write reports its own result.
func (b Bucket) SendAll(writes []*Writing) {
	all := make([]Member, len(writes))
	for i, w := range writes {
		all[i] = w
	}
	for len(all) > 0 {
		n := batchable(all)
		part := all[:n]
		all = all[n:]
		if b.Atomic && n >= minBatch {
			b.Transport.Ask(&newBatch(b.Wire, part).Question)
			continue
		}
		for _, w := range part {
			b.Transport.Ask(w.question())
		}
	}
}

// batchable returns how many of the messages fit into one batch.
func batchable(all []Member) (n int) { return fitting(all[:min(len(all), maxBatch)], maxBatchBytes) }

// fitting returns how many of the messages have bodies of at most that many bytes together, and at least one.
func fitting(all []Member, bytes int) (n int) {
	for ; n < len(all) && (n == 0 || all[n].Size() <= bytes); n++ {
		bytes -= all[n].Size()
	}
	return n
}

// newBatch returns a batch of messages to one stream with one context.
func newBatch(w Wire, all []Member) *batch {
	b := &batch{Wire: w, id: rand.Text(), all: all, header: nats.Header{}}
	first := all[0].question()
	b.Asker, b.ctx, b.Once, b.FailDenied, b.before = b, first.ctx, true, first.FailDenied, b.sendParts
	return b
}

func (b *batch) last() Member { return b.all[len(b.all)-1] }

// sendParts sends all messages of the batch except the last. The question itself is the
// last.
func (b *batch) sendParts(send func(*nats.Msg) error) error {
	var m nats.Msg
	for i := range b.all[:len(b.all)-1] {
		m = b.part(i)
		if err := send(&m); err != nil {
			return err
		}
	}
	return nil
}

// part returns message i of the batch. It copies the header, because a single copy may still
// be sent with the original header. The copy is valid until the next call: the client serializes
// it before that, so one map is enough.
func (b *batch) part(i int) (m nats.Msg) {
	b.all[i].Compose(&m)
	clear(b.header)
	maps.Copy(b.header, m.Header)
	b.header[headerBatchID], b.header[headerBatchSeq] = []string{b.id}, []string{strconv.Itoa(i + 1)}
	m.Header = b.header
	return m
}

func (b *batch) Subject() string { return b.last().Subject() }

// Compose builds the last message, which commits the batch.
func (b *batch) Compose(m *nats.Msg) {
	last := b.part(len(b.all) - 1)
	last.Header[headerBatchCommit] = []string{"1"}
	m.Subject, m.Header, m.Data = last.Subject, last.Header, last.Data
}

// Answer settles all members if the batch was stored. Otherwise each member goes on by itself.
func (b *batch) Answer(m *nats.Msg, err error) {
	last, err := b.stored(m, err)
	round := b.last().question().round
	if err == nil {
		for i, member := range b.all {
			member.question().round = nil
			member.Stored(last - uint64(len(b.all)-1-i)) // the server stores a batch without gaps
		}
		if round != nil {
			round.countAnswers(len(b.all)) // last, so that messages that the callbacks send are collected before the round ends
		}
		return
	}
	if round != nil && !overtaken(err) && !errors.Is(err, nats.ErrDisconnected) {
		round.group.failed()
	}
	// A permission violation, or a local refusal, may concern only one message of the batch.
	unanswered := m == nil && Classify(err) == Unanswered && !errors.Is(err, job.ErrDenied)
	for _, member := range b.all {
		member.Unstored(err, unanswered)
	}
}

// overtaken reports whether the server refused a batch because another message was first: one
// with a newer revision of a key, or with the same message ID.
func overtaken(err error) bool {
	return Classify(err) == conflict || HasCode(err, codeBatchDuplicate, codeInProcess)
}

// isStoredNowhere reports whether the server stored no message of a batch.
func isStoredNowhere(err error) bool {
	return overtaken(err) || HasCode(err, codeBatchDisabled, codeBatchIncomplete, codeBatchTooLarge, codeBatchTooMany)
}

// stored returns the sequence of the batch's last message.
func (b *batch) stored(m *nats.Msg, err error) (uint64, error) {
	if err != nil {
		return 0, err
	}
	a, err := PubAck(m)
	switch {
	case err != nil:
		return 0, err
	case a.batch != b.id || a.count != len(b.all):
		return 0, errNoBatch
	}
	return a.seq, b.Misplaced(b.Subject, a.Domain)
}
