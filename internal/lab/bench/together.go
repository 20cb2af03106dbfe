package bench

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"
)

// maxBatch is the largest number of messages in an atomic batch, as in internal/broker/wire.
const maxBatch = 1000

// publishTogether publishes messages in atomic batches, several of them at the same time.
func (h *hand) publishTogether(ctx context.Context, messages []*nats.Msg) error {
	const open = 4
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(open)
	for part := range slices.Chunk(messages, maxBatch) {
		group.Go(func() error {
			_, err := h.storeTogether(ctx, part)
			return err
		})
	}
	return group.Wait()
}

// storeTogether stores messages in one stream as an atomic batch (ADR-50 of NATS), and returns
// their sequences.
func (h *hand) storeTogether(ctx context.Context, messages []*nats.Msg) ([]uint64, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	nc, id := h.js.Conn(), rand.Text()
	for i, m := range messages {
		m.Header["Nats-Batch-Id"], m.Header["Nats-Batch-Sequence"] = []string{id}, []string{strconv.Itoa(i + 1)}
		if i == len(messages)-1 {
			break
		}
		if err := nc.PublishMsg(m); err != nil {
			return nil, err
		}
	}
	last := messages[len(messages)-1]
	last.Header["Nats-Batch-Commit"] = []string{"1"}
	answer, err := nc.RequestMsgWithContext(ctx, last)
	if err != nil {
		return nil, err
	}
	var ack struct {
		Sequence uint64 `json:"seq"`
		Count    int    `json:"count"`
	}
	if err := json.Unmarshal(answer.Data, &ack); err != nil || ack.Count != len(messages) {
		return nil, fmt.Errorf("the server answered an atomic batch of %d messages with %s", len(messages), answer.Data)
	}
	sequences := make([]uint64, len(messages))
	for i := range sequences {
		sequences[i] = ack.Sequence - uint64(len(messages)-1-i)
	}
	return sequences, nil
}
