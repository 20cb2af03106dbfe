package space

import (
	"context"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/wire"
)

// Foreign is a consumer or a stream that no program of a namespace has made, and that acts on it.
type Foreign struct {
	Stream   string
	Consumer string // empty: the stream itself is foreign
	What     string // what it does
}

// surveyForeign looks for consumers and streams that others have made. It leaves out what the login may not
// list: of the roles only setup, viewers and operators may list consumers, and none may list streams.
func (s *Space) surveyForeign(ctx context.Context, v *Survey) error {
	ours := layout.Streams(s.Namespace)
	for _, name := range ours {
		if v.Streams[name] == nil || v.Streams[name].State.Consumers == 0 {
			continue
		}
		found, err := s.foreignConsumers(ctx, name)
		if err != nil {
			return err
		}
		v.Foreign = append(v.Foreign, found...)
	}
	ctx, cancel := context.WithTimeout(ctx, wire.AttemptTimeout)
	defer cancel()
	list := s.JS.ListStreams(ctx)
	for info := range list.Info() {
		if what := s.actsOn(info.Config, ours); what != "" && !slices.Contains(ours, info.Config.Name) {
			v.Foreign = append(v.Foreign, Foreign{Stream: info.Config.Name, What: what})
		}
	}
	return nil
}

// foreignConsumers returns the consumers of a stream that stay although no program of the namespace made
// them. Programs watch buckets and events with consumers that end with them. The consumers of queues are
// compared with what they should be.
func (s *Space) foreignConsumers(ctx context.Context, name string) (foreign []Foreign, err error) {
	stream, err := s.JS.Stream(ctx, name)
	if err != nil {
		return nil, nil // it was removed meanwhile, or the server does not answer: other parts of the survey say so
	}
	ctx, cancel := context.WithTimeout(ctx, wire.AttemptTimeout)
	defer cancel()
	queues := name == s.SlotStream() || name == s.TimerStream()
	list := stream.ListConsumers(ctx)
	for info := range list.Info() {
		cfg, what := info.Config, ""
		switch {
		case name == s.EventStream() && info.Name == layout.AlertConsumer:
		case cfg.AckPolicy == jetstream.AckFlowControlPolicy && queues:
			what = "copies its messages to another stream, and the server keeps each until it is copied"
		case queues && cfg.Durable == "":
			what = "takes messages that are for workers"
		case !queues && cfg.Durable != "":
			what = "stays although no program reads it, and reads what is stored there"
		}
		if what != "" {
			foreign = append(foreign, Foreign{name, info.Name, what})
		}
	}
	return foreign, nil
}

// actsOn says what a stream of others does to the namespace. Empty: nothing.
func (s *Space) actsOn(cfg jetstream.StreamConfig, ours []string) string {
	within := func(subject string) bool {
		return strings.HasPrefix(subject, s.Namespace+".") || strings.HasPrefix(subject, "$KV."+s.Namespace+"_") && slices.ContainsFunc(ours, func(name string) bool {
			return strings.HasPrefix(subject, "$KV."+strings.TrimPrefix(name, "KV_")+".")
		})
	}
	for _, source := range append(slices.Clone(cfg.Sources), cfg.Mirror) {
		if source != nil && (source.Name == s.SlotStream() || source.Name == s.TimerStream()) {
			return "copies the messages of " + source.Name + ", and the server keeps each until it is copied"
		}
	}
	if i := slices.IndexFunc(cfg.Subjects, within); i >= 0 {
		return "stores messages on " + cfg.Subjects[i] + ", and answers requests there"
	}
	if cfg.RePublish != nil && within(cfg.RePublish.Destination) {
		return "publishes to " + cfg.RePublish.Destination
	}
	return ""
}
