package kv

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/job"
)

// Survey is what a namespace is on the broker, right or wrong.
type Survey struct {
	// Server, Version and Cluster are of the server that answers; Cluster is empty
	// when it is alone.
	Server, Version, Cluster string

	// MaxPayload is the largest message that it takes, in bytes; 0: it did not say.
	MaxPayload int

	// Settings are those of the namespace. SettingsErr says why they are not the
	// stored ones; it wraps job.ErrNotFound, job.ErrInvalid or job.ErrVersion.
	Settings    job.Settings
	SettingsErr error

	// Streams are what is there, the buckets' included, by name. Missing names
	// what is not, in words. Without the timers a namespace is complete; NoTimers
	// says that they are missing, Schedules that the server could have them.
	Streams             map[string]*jetstream.StreamInfo
	Missing             []string
	NoTimers, Schedules bool

	Differences []Difference
	Queues      []Queue

	// Account is what the account uses, and may. Nil: the server did not say.
	Account *jetstream.AccountInfo
}

// Difference is something that is not as the layout wants it.
type Difference struct {
	// Where, Field, Found and Want say it in words: "bucket cronce_jobs", "storage",
	// "Memory", "File".
	Where, Field, Found, Want string

	// Tolerated says that nodes work with it all the same. Setup says that Setup mends
	// it. Else Remove is the command that removes what cannot be changed, with all that
	// is in it.
	Tolerated, Setup bool
	Remove           string
}

// Queue is what a queue has on the broker.
type Queue struct {
	Name string

	// Slots and Timers are its consumers. Nil: there is none.
	Slots, Timers *jetstream.ConsumerInfo

	// Waiting counts its messages in the stream of slots, those that workers hold
	// included; Fired those of the timers whose time has come.
	Waiting, Fired uint64
}

// Complete reports whether all is there that a namespace cannot do without.
func (v Survey) Complete() bool { return len(v.Missing) == 0 && v.SettingsErr == nil }

// Examine looks at a namespace and changes nothing. Where Open refuses, it says
// what is wrong: only a namespace of which nothing is there is job.ErrNotFound. The
// store is fit for reading if the survey is Complete.
func Examine(ctx context.Context, js jetstream.JetStream, o Options) (*Store, Survey, error) {
	o.ReadOnly = true
	s, err := newStore(ctx, js, o)
	if err != nil {
		return nil, Survey{}, err
	}
	v := Survey{Streams: map[string]*jetstream.StreamInfo{}}
	for _, step := range []func(context.Context, *Survey) error{s.surveyStreams, s.surveySettings, s.surveyQueues, s.surveyAccount} {
		if err := step(ctx, &v); err != nil {
			return nil, v, err
		}
	}
	return s, v, nil
}

func (s *Store) surveyStreams(ctx context.Context, v *Survey) error {
	for _, want := range layout(s.namespace, job.Settings{}, true) {
		err := s.ask(ctx, "look for "+title(want.Name), s.api("STREAM.INFO."+want.Name), func(ctx context.Context) error {
			found, err := s.js.Stream(ctx, want.Name)
			if err == nil {
				v.Streams[want.Name] = found.CachedInfo()
			}
			return err
		})
		switch {
		case err == nil:
		case !errors.Is(err, jetstream.ErrStreamNotFound):
			return err
		case want.Name == s.timerStream():
			v.NoTimers = true
		default:
			v.Missing = append(v.Missing, title(want.Name))
		}
	}
	if len(v.Streams) == 0 {
		return s.notSetUp()
	}
	// Asked here, since by now a server has answered.
	server := s.link().connectedServer()
	v.Server, v.Version, v.Cluster, v.Schedules = server.name, server.version, server.cluster, s.schedules()
	v.MaxPayload = s.MaxPayload()
	return nil
}

func (s *Store) surveySettings(ctx context.Context, v *Survey) error {
	if _, ok := v.Streams[s.bucket("state").stream()]; ok {
		v.Settings, _, v.SettingsErr = s.readSettings(ctx)
	} else {
		v.SettingsErr = job.ErrNotFound
	}
	if err := v.SettingsErr; err != nil && !errors.Is(err, job.ErrNotFound) && !errors.Is(err, job.ErrInvalid) && !errors.Is(err, job.ErrVersion) {
		return err
	}
	v.Settings = v.Settings.WithDefaults()
	s.settings = v.Settings
	if v.SettingsErr != nil {
		return nil // there is nothing to compare with
	}
	for _, want := range layout(s.namespace, v.Settings, s.schedules()) {
		if found, ok := v.Streams[want.Name]; ok {
			for _, d := range differences(found.Config, want) {
				v.Differences = append(v.Differences, d.told(removal(d.where)))
			}
		}
	}
	return nil
}

func (d difference) told(remove string) Difference {
	told := Difference{Where: d.where, Field: d.field, Found: d.found, Want: d.want, Setup: !d.fixed, Tolerated: d.tolerated}
	if d.fixed {
		told.Remove = remove
	}
	return told
}

func (s *Store) surveyQueues(ctx context.Context, v *Survey) error {
	queues := map[string]*Queue{}
	queue := func(name string) *Queue {
		if queues[name] == nil {
			queues[name] = &Queue{Name: name}
		}
		return queues[name]
	}
	for _, stream := range []string{s.slotStream(), s.timerStream()} {
		if v.Streams[stream] == nil {
			continue
		}
		existing, err := s.queues(ctx, stream)
		if err != nil {
			return err
		}
		for _, info := range existing {
			if v.SettingsErr == nil {
				for _, d := range s.queueDifferences(stream, info.Config, s.queueConfig(stream, info.Name, v.Settings.Lease)) {
					v.Differences = append(v.Differences, d.told("nats consumer rm "+stream+" "+info.Name))
				}
			}
			if stream == s.slotStream() {
				queue(info.Name).Slots = info
			} else {
				queue(info.Name).Timers = info
			}
		}
		waiting, err := s.waitingByQueue(ctx, stream)
		if err != nil {
			return err
		}
		for name, n := range waiting {
			if stream == s.slotStream() {
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

// waitingByQueue counts the messages that are for workers now.
func (s *Store) waitingByQueue(ctx context.Context, stream string) (map[string]uint64, error) {
	prefix := s.namespace + ".slot."
	if stream == s.timerStream() {
		prefix = s.namespace + ".timer.due."
	}
	found, err := s.counts(ctx, stream, prefix+">")
	counts := map[string]uint64{}
	for subject, n := range found {
		name, _, _ := strings.Cut(strings.TrimPrefix(subject, prefix), ".")
		counts[name] += n
	}
	return counts, err
}

// surveyAccount leaves out what the server does not say: who may not ask for it can
// see the rest all the same.
func (s *Store) surveyAccount(ctx context.Context, v *Survey) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	if info, err := s.js.AccountInfo(ctx); err == nil {
		v.Account = info
	}
	return nil
}
