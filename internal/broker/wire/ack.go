package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/job"
)

// Ack is the broker's answer after it stored a message, or (duplicate) found it already
// stored.
type Ack struct {
	seq       uint64
	Domain    string
	Duplicate bool
	batch     string // the batch that this message commits; empty: none
	count     int    // number of messages in the batch
}

// Sequence returns the sequence at which the stream has the message: of a duplicate, that of the earlier one.
func (a Ack) Sequence() uint64 { return a.seq }

// PubAck decodes the broker's answer to a write: {"stream":"S","seq":12}, sometimes with
// more members.
func PubAck(m *nats.Msg) (Ack, error) {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return Ack{}, jetstream.ErrNoStreamResponse
	}
	if seq := plainAck(m.Data); seq > 0 {
		return Ack{seq: seq}, nil
	}
	var answer struct {
		Error     *jetstream.APIError `json:"error"`
		Stream    string              `json:"stream"`
		Seq       uint64              `json:"seq"`
		Domain    string              `json:"domain"`
		Duplicate bool                `json:"duplicate"`
		Batch     string              `json:"batch"`
		Count     int                 `json:"count"`
	}
	switch err := json.Unmarshal(m.Data, &answer); {
	case err != nil, answer.Error == nil && (answer.Stream == "" || answer.Seq == 0):
		return Ack{}, jetstream.ErrInvalidJSAck
	case answer.Error != nil:
		return Ack{}, explainFull(answer.Error)
	}
	return Ack{answer.Seq, answer.Domain, answer.Duplicate, answer.Batch, answer.Count}, nil
}

// explainFull adds job.ErrFull, and the limit that was reached, to the refusal of a message for which
// there was no room. It returns any other refusal unchanged.
func explainFull(refusal *jetstream.APIError) error {
	limit := strings.Contains(refusal.Description, "maximum")
	switch {
	case refusal.ErrorCode == codeNoResources, refusal.ErrorCode == codeNoStorage,
		refusal.ErrorCode == codeStoreFailed && !limit && strings.Contains(refusal.Description, "no space"):
		return fmt.Errorf("%w: the NATS server needs free disk space or a higher limit: %w", job.ErrFull, refusal)
	case refusal.ErrorCode == codeAccountFull:
		return fmt.Errorf("%w: the NATS account has reached its limit: %w", job.ErrFull, refusal)
	case refusal.ErrorCode == codeStoreFailed && limit:
		return fmt.Errorf("%w: the stream has reached its limit: %w", job.ErrFull, refusal)
	}
	return refusal
}

// plainAck decodes an answer that holds only the stream and the sequence. It returns 0
// for any other answer.
func plainAck(data []byte) (seq uint64) {
	rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`))
	if !ok {
		return 0
	}
	_, rest, _ = bytes.Cut(rest, []byte(`"`)) // stream names contain no quotes
	rest, ok = bytes.CutPrefix(rest, []byte(`,"seq":`))
	if !ok {
		return 0
	}
	rest, ok = bytes.CutSuffix(rest, []byte("}"))
	if !ok || len(rest) == 0 || len(rest) > 19 {
		return 0
	}
	for _, c := range rest {
		if c < '0' || c > '9' {
			return 0
		}
		seq = seq*10 + uint64(c-'0')
	}
	return seq
}

// Acks sends the acks of one delivered message through the transport. It implements the methods of
// jetstream.Msg that send acks, because the client's own methods may wait for the connection's lock.
type Acks struct {
	Wire  *Wire
	reply string
}

// NewAcks returns the acks of the message with this reply subject.
func NewAcks(w *Wire, reply string) Acks { return Acks{w, reply} }

func (a Acks) send(ack string) error {
	a.Wire.Transport.Publish(a.reply, "", []byte(ack), time.Time{})
	return nil
}

func (a Acks) Ack() error                         { return a.send("+ACK") }
func (a Acks) Nak() error                         { return a.send("-NAK") }
func (a Acks) InProgress() error                  { return a.send("+WPI") }
func (a Acks) Term() error                        { return a.send("+TERM") }
func (a Acks) TermWithReason(reason string) error { return a.send("+TERM " + reason) }

// NakWithDelay asks the broker to deliver the message again after delay.
func (a Acks) NakWithDelay(delay time.Duration) error {
	return a.send(fmt.Sprintf(`-NAK {"delay": %d}`, delay.Nanoseconds()))
}

// DoubleAck acks the message and waits for the broker's answer.
func (a Acks) DoubleAck(ctx context.Context) error {
	_, err := a.Wire.Request(ctx, &nats.Msg{Subject: a.reply, Data: []byte("+ACK")})
	return err
}
