package kv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cronce-io/cronce/job"
	"github.com/nats-io/nats.go/jetstream"
)

// maxAckPending is how many messages of one queue may be unsettled: in flight,
// or given back with a delay, for these hold their place too.
const maxAckPending = 1_000_000

// Queue returns the durable consumer of a queue, which it creates when there is
// none. One that exists is compared, never updated: a difference that matters is
// job.ErrMismatch.
func (l *Slots) Queue(ctx context.Context, queue string) (jetstream.Consumer, error) {
	if err := job.ValidateName("queue", queue); err != nil {
		return nil, err
	}
	s, want := l.s, l.s.queueConfig(queue, l.s.settings.Lease)
	var c jetstream.Consumer
	get := func(ctx context.Context) (err error) {
		c, err = s.js.Consumer(ctx, s.slotStream(), queue)
		return err
	}
	create := func(ctx context.Context) (err error) {
		c, err = s.js.CreateConsumer(ctx, s.slotStream(), want)
		return err
	}
	err := s.ask(ctx, "look for queue "+queue, get)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		err = s.ask(ctx, "create queue "+queue, create)
		if errors.Is(err, jetstream.ErrConsumerExists) { // of a program with other ideas of it
			err = s.ask(ctx, "look for queue "+queue, get)
		}
	}
	if err != nil {
		return nil, err
	}
	wrong := queueDifferences(c.CachedInfo().Config, want)
	for _, d := range wrong {
		if d.fixed {
			return nil, fmt.Errorf("%w: %s: that cannot be changed in place: nats consumer rm %s %s", job.ErrMismatch, d, s.slotStream(), queue)
		}
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("%w: %s: mend it: %s", job.ErrMismatch, wrong[0], s.setupCommand())
	}
	return c, nil
}

func (s *Store) queueConfig(queue string, lease time.Duration) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       queue,
		FilterSubject: s.namespace + ".slot." + queue + ".>",
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       lease,
		MaxDeliver:    -1, // the attempts are ours to count
		MaxAckPending: maxAckPending,
	}
}

type queueDifference struct {
	difference
	mend func(*jetstream.ConsumerConfig)
}

func queueDifferences(found, want jetstream.ConsumerConfig) []queueDifference {
	var all []queueDifference
	check := func(field string, f, w any, mend func(*jetstream.ConsumerConfig)) {
		if fs, ws := fmt.Sprint(f), fmt.Sprint(w); fs != ws {
			d := difference{where: "queue " + want.Durable, field: field, found: fs, want: ws, fixed: mend == nil}
			all = append(all, queueDifference{d, mend})
		}
	}
	check("ack policy", found.AckPolicy, want.AckPolicy, nil)
	check("ack wait", found.AckWait, want.AckWait, func(c *jetstream.ConsumerConfig) { c.AckWait = want.AckWait })
	check("max deliver", found.MaxDeliver, want.MaxDeliver, func(c *jetstream.ConsumerConfig) { c.MaxDeliver = want.MaxDeliver })
	check("max ack pending", found.MaxAckPending, want.MaxAckPending, func(c *jetstream.ConsumerConfig) { c.MaxAckPending = want.MaxAckPending })
	check("backoff", found.BackOff, want.BackOff, func(c *jetstream.ConsumerConfig) { c.BackOff = nil })
	check("inactive threshold", found.InactiveThreshold, want.InactiveThreshold, func(c *jetstream.ConsumerConfig) { c.InactiveThreshold = 0 })
	check("headers only", found.HeadersOnly, want.HeadersOnly, func(c *jetstream.ConsumerConfig) { c.HeadersOnly = false })
	check("filter", filters(found), filters(want),
		func(c *jetstream.ConsumerConfig) { c.FilterSubject, c.FilterSubjects = want.FilterSubject, nil })
	return all
}

func filters(c jetstream.ConsumerConfig) string {
	if len(c.FilterSubjects) > 0 {
		return strings.Join(c.FilterSubjects, ",")
	}
	return c.FilterSubject
}

// updateQueues mends the consumers that queues have already.
func (s *Store) updateQueues(ctx context.Context, _ *inventory, target job.Settings) (changes []string, err error) {
	var existing []jetstream.ConsumerConfig
	err = s.ask(ctx, "list the queues", func(ctx context.Context) error {
		existing = nil
		stream, err := s.js.Stream(ctx, s.slotStream())
		if err != nil {
			return err
		}
		list := stream.ListConsumers(ctx)
		for info := range list.Info() {
			existing = append(existing, info.Config)
		}
		return list.Err()
	})
	if err != nil {
		return nil, err
	}
	for _, cfg := range existing {
		if cfg.Durable == "" {
			continue
		}
		wrong := queueDifferences(cfg, s.queueConfig(cfg.Durable, target.Lease))
		for _, d := range wrong {
			if d.fixed {
				return changes, fmt.Errorf("%w: %s: that cannot be changed in place: nats consumer rm %s %s", job.ErrMismatch, d, s.slotStream(), cfg.Durable)
			}
			d.mend(&cfg)
		}
		if len(wrong) == 0 {
			continue
		}
		err := s.ask(ctx, "change queue "+cfg.Durable, func(ctx context.Context) error {
			_, err := s.js.UpdateConsumer(ctx, s.slotStream(), cfg)
			return err
		})
		if err != nil {
			return changes, err
		}
		for _, d := range wrong {
			changes = append(changes, fmt.Sprintf("changed %s: %s %s instead of %s", d.where, d.field, d.difference.want, d.found))
		}
	}
	return changes, nil
}
