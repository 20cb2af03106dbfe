package wire

import (
	"bytes"
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

// explainFull wraps job.ErrFull around a refusal because of a full storage, and names the limit. It
// returns any other refusal unchanged.
func explainFull(refusal *jetstream.APIError) error {
	limit := strings.Contains(refusal.Description, "maximum")
	switch {
	case refusal.ErrorCode == codeNoResources, refusal.ErrorCode == codeNoStorage,
		refusal.ErrorCode == codeStoreFailed && !limit && strings.Contains(refusal.Description, "no space"):
		return fmt.Errorf("%w: that of the NATS server, which needs room on its disk or a higher limit: %w", job.ErrFull, refusal)
	case refusal.ErrorCode == codeAccountFull:
		return fmt.Errorf("%w: what the NATS account may store: %w", job.ErrFull, refusal)
	case refusal.ErrorCode == codeStoreFailed && limit:
		return fmt.Errorf("%w: the stream's own limit: %w", job.ErrFull, refusal)
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

// NakWithDelay returns the ack that asks the broker to deliver a message again after delay.
func NakWithDelay(delay time.Duration) string {
	return fmt.Sprintf(`-NAK {"delay": %d}`, delay.Nanoseconds())
}
