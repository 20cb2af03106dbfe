package space

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// maxAckPending bounds the messages of one queue that were delivered and not acked. Messages that
// were nak'd with a delay count too.
const maxAckPending = 1_000_000

// Prioritizes reports whether the server supports priorities; see link.Server.AtLeast.
func (s *Space) Prioritizes() bool { return s.Link().ConnectedServer().AtLeast(2, 12) }

// CheckPriority refuses a priority outside 0 to 9, or one that the server does not
// support. Every server supports zero, the default. Its errors wrap job.ErrInvalid.
func (s *Space) CheckPriority(priority int) error {
	switch {
	case priority < 0 || priority > exchange.MaxPriority:
		return fmt.Errorf("%w priority %d: must be 0 (first) to %d", job.ErrInvalid, priority, exchange.MaxPriority)
	case priority != 0 && !s.Prioritizes():
		return fmt.Errorf("%w priority %d: nats-server %s on %s does not support priorities: 2.12 or newer is needed, or leave it at 0",
			job.ErrInvalid, priority, s.Link().ConnectedServer().Version, s.Link().ConnectedServer().URL)
	}
	return nil
}

// Queue returns the consumer of a queue on the stream, and creates it if it does not exist. It
// never updates the consumer. If the consumer differs from what Cronce needs, the error is
// job.ErrMismatch.
func (s *Space) Queue(ctx context.Context, stream, queue string) (jetstream.Consumer, error) {
	name, _ := layout.LaneOf(queue)
	if err := codec.ValidateName("queue", name); err != nil {
		return nil, err
	}
	want := s.queueConfig(stream, queue, s.settings.Lease)
	c, err := s.consumer(ctx, stream, queue)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		// Use the lease stored now. It may differ from the one this process started with.
		created := want
		if set, _, err := s.readSettings(ctx); err == nil {
			created.AckWait = set.WithDefaults().Lease
		}
		c, err = s.createConsumer(ctx, stream, created)
	}
	if errors.Is(err, job.ErrDenied) {
		return nil, fmt.Errorf("%w: set it up with a login that may: %s", err, s.SetupCommand("--queue "+name))
	}
	if err != nil {
		return nil, err
	}
	wrong := s.queueDifferences(stream, c.CachedInfo().Config, want)
	for _, d := range wrong {
		if d.Remove != "" {
			return nil, d.refused()
		}
	}
	if len(wrong) > 0 && !s.matchesStored(ctx, stream, c.CachedInfo().Config) {
		return nil, fmt.Errorf("%w: %s: mend it: %s", job.ErrMismatch, wrong[0], s.SetupCommand())
	}
	return c, nil
}

// matchesStored reports whether a queue's consumer matches the settings that are stored now. If it
// does, Setup has changed both since this process started. This process keeps its old settings
// until it restarts, and until then works with a different ack wait.
func (s *Space) matchesStored(ctx context.Context, stream string, found jetstream.ConsumerConfig) bool {
	set, _, err := s.readSettings(ctx)
	return err == nil && len(s.queueDifferences(stream, found, s.queueConfig(stream, found.Durable, set.WithDefaults().Lease))) == 0
}

func (s *Space) queueConfig(stream, queue string, lease time.Duration) jetstream.ConsumerConfig {
	subjects := ".slot."
	if stream == s.TimerStream() {
		subjects = ".timer.due."
	}
	cfg := jetstream.ConsumerConfig{
		Durable:       queue,
		FilterSubject: s.Namespace + subjects + queue + ".>",
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       lease,
		MaxDeliver:    -1, // the ledger counts the attempts
		MaxAckPending: maxAckPending,
	}
	if s.Prioritizes() {
		cfg.PriorityPolicy, cfg.PriorityGroups = jetstream.PriorityPolicyPrioritized, []string{layout.WorkerGroup}
	}
	return cfg
}

// queueDifference is a difference of a queue's consumer. mend sets the wanted value.
type queueDifference struct {
	layout.Difference
	mend func(*jetstream.ConsumerConfig)
}

// refused returns the error for a difference that the server cannot change in place.
func (d queueDifference) refused() error {
	return fmt.Errorf("%w: %s: that cannot be changed in place: %s", job.ErrMismatch, d, d.Remove)
}

// queueDifferences returns how an existing consumer of a queue differs from the wanted one.
func (s *Space) queueDifferences(stream string, found, want jetstream.ConsumerConfig) []queueDifference {
	var all []queueDifference
	name, bulk := layout.LaneOf(want.Durable)
	where := "queue " + name
	if bulk {
		where = "the bulk lane of " + where
	}
	if stream == s.TimerStream() {
		where += " of " + layout.Title(stream)
	}
	check := func(field string, f, w any, mend func(*jetstream.ConsumerConfig)) {
		if fs, ws := fmt.Sprint(f), fmt.Sprint(w); fs != ws {
			d := layout.Difference{Where: where, Field: field, Found: fs, Want: ws}
			if mend == nil {
				d.Remove = "nats consumer rm " + stream + " " + want.Durable
			}
			all = append(all, queueDifference{d, mend})
		}
	}
	check("ack policy", found.AckPolicy, want.AckPolicy, nil)
	check("ack wait", found.AckWait, want.AckWait, func(c *jetstream.ConsumerConfig) { c.AckWait = want.AckWait })
	check("max deliver", found.MaxDeliver, want.MaxDeliver, func(c *jetstream.ConsumerConfig) { c.MaxDeliver = want.MaxDeliver })
	if found.MaxAckPending > want.MaxAckPending || found.MaxAckPending < 1 { // the server, or an operator, may set a lower bound
		check("max ack pending", found.MaxAckPending, want.MaxAckPending, func(c *jetstream.ConsumerConfig) { c.MaxAckPending = want.MaxAckPending })
	}
	check("backoff", found.BackOff, want.BackOff, func(c *jetstream.ConsumerConfig) { c.BackOff = nil })
	check("inactive threshold", found.InactiveThreshold, want.InactiveThreshold, func(c *jetstream.ConsumerConfig) { c.InactiveThreshold = 0 })
	check("headers only", found.HeadersOnly, want.HeadersOnly, func(c *jetstream.ConsumerConfig) { c.HeadersOnly = false })
	if len(want.PriorityGroups) > 0 { // an older server omits the field
		check("priorities", priorities(found), priorities(want),
			func(c *jetstream.ConsumerConfig) {
				c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = want.PriorityPolicy, want.PriorityGroups, 0
			})
	}
	check("filter", filters(found), filters(want),
		func(c *jetstream.ConsumerConfig) { c.FilterSubject, c.FilterSubjects = want.FilterSubject, nil })
	return all
}

// priorities returns the priority settings as text, to compare them.
func priorities(c jetstream.ConsumerConfig) string {
	if len(c.PriorityGroups) == 0 {
		return "none"
	}
	policy, _ := c.PriorityPolicy.MarshalJSON()
	return strings.Trim(string(policy), `"`) + " " + strings.Join(c.PriorityGroups, ",")
}

func filters(c jetstream.ConsumerConfig) string {
	if len(c.FilterSubjects) > 0 {
		return strings.Join(c.FilterSubjects, ",")
	}
	return c.FilterSubject
}

// updateQueues corrects the existing consumers of all queues.
func (s *Space) updateQueues(ctx context.Context, inv *inventory, target job.Settings) (changes []string, err error) {
	for _, stream := range []string{s.SlotStream(), s.TimerStream()} {
		if _, ok := inv.streams[stream]; !ok {
			continue
		}
		existing, err := s.Queues(ctx, stream)
		if err != nil {
			return changes, err
		}
		for _, info := range existing {
			done, err := s.updateQueue(ctx, stream, info.Config, target)
			changes = append(changes, done...)
			if err != nil {
				return changes, err
			}
		}
	}
	return changes, nil
}

// createQueues creates the missing consumers of the wanted queues. Workers whose login
// may not create consumers need them.
func (s *Space) createQueues(ctx context.Context, inv *inventory, target job.Settings, wanted []string) (changes []string, err error) {
	for _, stream := range []string{s.SlotStream(), s.TimerStream()} {
		if _, ok := inv.streams[stream]; !ok || len(wanted) == 0 {
			continue
		}
		existing, err := s.Queues(ctx, stream)
		if err != nil {
			return changes, err
		}
		lanes := wanted
		if stream == s.SlotStream() {
			lanes = slices.Concat(wanted, codec.Map(wanted, layout.BulkLane))
		}
		for _, queue := range lanes {
			if slices.ContainsFunc(existing, func(c *jetstream.ConsumerInfo) bool { return c.Name == queue }) {
				continue
			}
			if _, err := s.createConsumer(ctx, stream, s.queueConfig(stream, queue, target.Lease)); err != nil {
				return changes, err
			}
			if name, bulk := layout.LaneOf(queue); bulk {
				changes = append(changes, "created the bulk lane of queue "+name)
			} else {
				changes = append(changes, "created queue "+queue+" of "+layout.Title(stream))
			}
		}
	}
	return changes, nil
}

// Queues returns the durable consumers of a stream, except those that a server made for a mirror of the
// stream, or for a stream that has it as a source.
func (s *Space) Queues(ctx context.Context, name string) ([]*jetstream.ConsumerInfo, error) {
	var existing []*jetstream.ConsumerInfo // after an error, a request that Ask abandoned may still write it
	err := s.Ask(ctx, "list the queues of "+name, s.API("CONSUMER.LIST."+name), func(ctx context.Context) error {
		existing = nil
		stream, err := s.JS.Stream(ctx, name)
		if err != nil {
			return err
		}
		list := stream.ListConsumers(ctx)
		for info := range list.Info() {
			if info.Config.Durable != "" && info.Config.AckPolicy != jetstream.AckFlowControlPolicy {
				existing = append(existing, info)
			}
		}
		return list.Err()
	})
	if err != nil {
		return nil, err
	}
	return existing, nil
}

// updateQueue corrects one existing consumer.
func (s *Space) updateQueue(ctx context.Context, stream string, cfg jetstream.ConsumerConfig, target job.Settings) (changes []string, err error) {
	wrong := s.queueDifferences(stream, cfg, s.queueConfig(stream, cfg.Durable, target.Lease))
	for _, d := range wrong {
		if d.Remove != "" {
			return nil, d.refused()
		}
		d.mend(&cfg)
		changes = append(changes, fmt.Sprintf("changed %s: %s %s instead of %s", d.Where, d.Field, d.Want, d.Found))
	}
	if len(wrong) == 0 {
		return nil, nil
	}
	err = s.Ask(ctx, "change queue "+cfg.Durable+" of "+stream, s.API("CONSUMER.CREATE."+stream+"."+cfg.Durable), func(ctx context.Context) error {
		_, err := s.JS.UpdateConsumer(ctx, stream, cfg)
		return err
	})
	if err != nil {
		return nil, err
	}
	return changes, nil
}

// Counts returns how many messages the stream's leader has on each subject that matches
// the filter.
func (s *Space) Counts(ctx context.Context, stream, filter string) (map[string]uint64, error) {
	var counts map[string]uint64 // after an error, a request that Ask abandoned may still write it
	err := s.Ask(ctx, "count what waits in "+stream, s.API("STREAM.INFO."+stream), func(ctx context.Context) error {
		handle, err := s.JS.Stream(ctx, stream)
		if err != nil {
			return err
		}
		info, err := handle.Info(ctx, jetstream.WithSubjectFilter(filter))
		if err == nil {
			counts = info.State.Subjects
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return counts, nil
}
