package space

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// Survey describes a namespace as it is on the broker, correct or not.
type Survey struct {
	// Server and Version describe the server that answered.
	Server, Version string

	// Cluster is the name of the cluster that holds the streams. It is empty if one server does.
	Cluster string

	// MaxPayload is the server's limit for a message, in bytes, or 0 if it is unknown.
	MaxPayload int

	// Settings are the stored settings. If there are none, or they cannot be used, Settings
	// are the defaults, and SettingsErr is the reason. It wraps job.ErrNotFound,
	// job.ErrInvalid or job.ErrVersion.
	Settings    job.Settings
	SettingsErr error

	// Streams are the existing streams by name, including those of the buckets. Missing holds the
	// titles of those that do not exist. A namespace without timers is complete: NoTimers is true
	// if their stream is missing, and Schedules if the server supports it.
	Streams             map[string]*jetstream.StreamInfo
	Missing             []string
	NoTimers, Schedules bool

	Differences []layout.Difference
	Queues      []Queue

	// Foreign are consumers and streams that others have made, as far as the login may list them.
	Foreign []Foreign

	// Account is the account's usage and limits. It is nil if the server did not answer.
	Account *jetstream.AccountInfo
}

// Queue describes a queue on the broker.
type Queue struct {
	Name string

	// Slots, Bulk and Timers are the queue's consumers, or nil.
	Slots, Bulk, Timers *jetstream.ConsumerInfo

	// Waiting counts the queue's messages in the stream of slots, including those in
	// flight. Fired counts its fired timers.
	Waiting, Fired uint64
}

// Consumers returns the queue's consumers that exist.
func (q Queue) Consumers() []*jetstream.ConsumerInfo {
	return slices.DeleteFunc([]*jetstream.ConsumerInfo{q.Slots, q.Bulk, q.Timers}, func(c *jetstream.ConsumerInfo) bool { return c == nil })
}

// Complete reports whether everything that a namespace requires exists, and its settings can be used.
func (v Survey) Complete() bool { return len(v.Missing) == 0 && v.SettingsErr == nil }

// Examine inspects a namespace and changes nothing. Where Open returns an error, Examine
// reports the problem in the survey. If nothing of the namespace exists, the error wraps
// job.ErrNotFound. If the survey is Complete, the Space can be used for reading.
func Examine(ctx context.Context, js jetstream.JetStream, o Options) (*Space, Survey, error) {
	o.ReadOnly = true
	s, err := newSpace(ctx, js, o)
	if err != nil {
		return nil, Survey{}, err
	}
	return s.Examine(ctx)
}

// Examine is the function Examine for the namespace of an open Space. It shares the wire of that
// Space, because each wire keeps goroutines and subscriptions until the connection is closed.
func (s *Space) Examine(ctx context.Context) (*Space, Survey, error) {
	s = s.WithFailDenied() // a copy, whose settings the survey sets
	v := Survey{Streams: map[string]*jetstream.StreamInfo{}}
	for _, step := range []func(context.Context, *Survey) error{s.surveyStreams, s.surveySettings, s.surveyQueues, s.surveyForeign, s.surveyAccount} {
		if err := step(ctx, &v); err != nil {
			return nil, v, err
		}
	}
	return s, v, nil
}

func (s *Space) surveyStreams(ctx context.Context, v *Survey) error {
	for _, want := range layout.Configs(s.Namespace, job.Settings{}, true) {
		info, err := s.StreamInfo(ctx, "look for "+layout.Title(want.Name), want.Name)
		switch {
		case err == nil:
			v.Streams[want.Name] = info
			// A server that connects to others as a leaf node, and is in no cluster, uses its own name
			// as that of a cluster. The connection's server may also be a leaf node of the streams' one.
			if c := info.Cluster; c != nil && c.Name != c.Leader {
				v.Cluster = c.Name
			}
		case !errors.Is(err, jetstream.ErrStreamNotFound):
			return err
		case want.Name == s.TimerStream():
			v.NoTimers = true
		default:
			v.Missing = append(v.Missing, layout.Title(want.Name))
		}
	}
	if len(v.Streams) == 0 {
		return s.notSetUp()
	}
	// A server has answered by now, so its version is known.
	server := s.Link().ConnectedServer()
	v.Server, v.Version, v.Schedules = server.Name, server.Version, s.Schedules()
	v.MaxPayload = s.MaxPayload()
	return nil
}

func (s *Space) surveySettings(ctx context.Context, v *Survey) error {
	if _, ok := v.Streams[s.Bucket("state").Stream]; ok {
		v.Settings, _, v.SettingsErr = s.readSettings(ctx)
	} else {
		v.SettingsErr = job.ErrNotFound
	}
	if err := v.SettingsErr; err != nil && !errors.Is(err, job.ErrNotFound) && !exchange.IsUnreadable(err) {
		return err
	}
	v.Settings = v.Settings.WithDefaults()
	s.settings = v.Settings
	if v.SettingsErr != nil {
		return nil // there are no settings to compare with
	}
	for _, want := range layout.Configs(s.Namespace, v.Settings, s.Schedules()) {
		if found, ok := v.Streams[want.Name]; ok {
			v.Differences = append(v.Differences, layout.Differences(found.Config, want)...)
		}
	}
	return nil
}

func (s *Space) surveyQueues(ctx context.Context, v *Survey) error {
	queues := map[string]*Queue{}
	queue := func(name string) *Queue {
		if queues[name] == nil {
			queues[name] = &Queue{Name: name}
		}
		return queues[name]
	}
	for _, stream := range []string{s.SlotStream(), s.TimerStream()} {
		if v.Streams[stream] == nil {
			continue
		}
		existing, err := s.Queues(ctx, stream)
		if err != nil {
			return err
		}
		for _, info := range existing {
			if v.SettingsErr == nil {
				for _, d := range s.queueDifferences(stream, info.Config, s.queueConfig(stream, info.Name, v.Settings.Lease)) {
					v.Differences = append(v.Differences, d.Difference)
				}
			}
			switch name, bulk := layout.LaneOf(info.Name); {
			case bulk:
				queue(name).Bulk = info
			case stream == s.SlotStream():
				queue(name).Slots = info
			default:
				queue(name).Timers = info
			}
		}
		waiting, err := s.waitingByQueue(ctx, stream)
		if err != nil {
			return err
		}
		for name, n := range waiting {
			if stream == s.SlotStream() {
				queue(name).Waiting = n
			} else {
				queue(name).Fired = n
			}
		}
	}
	for _, q := range queues {
		v.Queues = append(v.Queues, *q)
	}
	slices.SortFunc(v.Queues, func(x, y Queue) int { return strings.Compare(x.Name, y.Name) })
	return nil
}

// waitingByQueue counts the messages for workers by queue, including those in flight: the slots to
// run, or the fired timers.
func (s *Space) waitingByQueue(ctx context.Context, stream string) (map[string]uint64, error) {
	prefix := s.Namespace + ".slot."
	if stream == s.TimerStream() {
		prefix = s.Namespace + ".timer.due."
	}
	found, err := s.Counts(ctx, stream, prefix+">")
	counts := map[string]uint64{}
	for subject, n := range found {
		lane, _, _ := strings.Cut(strings.TrimPrefix(subject, prefix), ".")
		name, _ := layout.LaneOf(lane)
		counts[name] += n
	}
	return counts, err
}

// surveyAccount ignores errors: a login that may not read the account's usage still gets
// the rest of the survey.
func (s *Space) surveyAccount(ctx context.Context, v *Survey) error {
	ctx, cancel := context.WithTimeout(ctx, wire.AttemptTimeout)
	defer cancel()
	if info, err := s.JS.AccountInfo(ctx); err == nil {
		v.Account = info
	}
	return nil
}
