package space

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/wire"
)

// Feed delivers the messages of a durable consumer, a few at a time. Each message goes to
// one of the processes that have opened the feed. Use it only for messages that may be late: if
// the leader changes, the client library's Fetch can lose a message, and the broker delivers
// it again after AckWait. The slots of queues are pulled by stream.Source instead.
type Feed struct {
	s        *Space
	consumer jetstream.Consumer
}

// delivered is a message of a feed. It sends its acks with wire.Acks instead of the client's own
// methods: clientMsg embeds those one level deeper, so Go selects the methods of Acks.
type delivered struct {
	clientMsg
	wire.Acks
}

type clientMsg struct {
	jetstream.Msg
	feed *Feed
}

// Metadata returns the message's metadata, with the timestamp converted; see Options.Stamp.
func (m clientMsg) Metadata() (*jetstream.MsgMetadata, error) {
	meta, err := m.Msg.Metadata()
	if err == nil {
		meta.Timestamp = m.feed.s.Stamped(meta.Timestamp)
	}
	return meta, err
}

func (f *Feed) delivered(m jetstream.Msg) jetstream.Msg {
	return delivered{clientMsg{m, f}, wire.NewAcks(&f.s.Wire, m.Reply())}
}

// Each requests up to n messages, and calls handle with each, one at a time, as they
// arrive. It returns when all have arrived, after wire.FeedWait, or when ctx ends. After an
// error, the caller must open the feed again.
func (f *Feed) Each(ctx context.Context, n int, handle func(jetstream.Msg)) error {
	return f.Groups(ctx, n, wire.FeedWait, func(group []jetstream.Msg) error {
		for _, m := range group {
			handle(m)
		}
		return nil
	})
}

// Groups requests up to n messages, and no more bytes than wire.PullBytes, and waits for them for at most wait. It calls handle
// with the messages that have arrived together, one group at a time. If handle returns an
// error, Groups naks the messages that it has not passed to handle, and returns the error. After
// an error, the caller must open the feed again.
func (f *Feed) Groups(ctx context.Context, n int, wait time.Duration, handle func([]jetstream.Msg) error) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	batch, err := wire.Fetch(ctx, f.consumer, n, jetstream.FetchMaxBytes(f.s.PullBytes()))
	if err != nil {
		return err
	}
	messages, arrived := batch.Messages(), false
	for m := range messages {
		arrived = true
		group := []jetstream.Msg{f.delivered(m)}
		for more := true; more; {
			select {
			case m, more = <-messages:
				if more {
					group = append(group, f.delivered(m))
				}
			default:
				more = false
			}
		}
		if err := handle(group); err != nil {
			cancel()
			for m := range messages {
				_ = f.delivered(m).Nak()
			}
			return err
		}
	}
	err = batch.Error()
	if errors.Is(err, jetstream.ErrMaxBytesExceeded) && arrived { // the next message goes into the next request
		return nil
	}
	if ctx.Err() == nil && !errors.Is(err, jetstream.ErrNoHeartbeat) {
		return err
	}
	return nil // ctx ended, or the server stopped answering
}

const (
	// alertWait is the time after which the broker delivers an alert again if it was not
	// acked. A worker needs less time for one attempt to send it.
	alertWait = time.Minute

	// maxAlertsPending is the number of alerts that may be delivered and not acked. Those that wait for a failing
	// webhook count: beyond this number no other alert is delivered.
	maxAlertsPending = 1_000_000
)

// Alerts opens the feed of events of the kind job.EventAlert. Most are alerts to send. The others
// report a reopened slot, or an error that an operator should read.
func (s *Space) Alerts(ctx context.Context) (*Feed, error) {
	return s.feed(ctx, s.EventStream(), s.alertConfig())
}

func (s *Space) alertConfig() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: layout.AlertConsumer, FilterSubject: s.EventSubject("alert", "*"),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: alertWait, MaxDeliver: -1, MaxAckPending: maxAlertsPending,
	}
}

// createAlerts creates the consumer of alerts if it does not exist. Workers whose login may not
// create it need that.
func (s *Space) createAlerts(ctx context.Context) (changes []string, err error) {
	_, err = s.consumer(ctx, s.EventStream(), layout.AlertConsumer)
	if !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, err
	}
	if _, err := s.Alerts(ctx); err != nil {
		return nil, err
	}
	return []string{"created consumer " + layout.AlertConsumer + " of " + layout.Title(s.EventStream())}, nil
}

// feed opens a durable consumer, and creates it if it does not exist.
func (s *Space) feed(ctx context.Context, stream string, want jetstream.ConsumerConfig) (*Feed, error) {
	c, err := s.consumer(ctx, stream, want.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		c, err = s.createConsumer(ctx, stream, want)
	}
	if err != nil {
		return nil, err
	}
	return &Feed{s, c}, nil
}
