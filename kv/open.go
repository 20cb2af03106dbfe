package kv

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
)

func Open(ctx context.Context, js jetstream.JetStream, o Options) (*Store, error) {
	return newStore(js, o)
}

func Setup(ctx context.Context, js jetstream.JetStream, o Options) (changes []string, err error) {
	return nil, nil
}

func (l *Slots) Queue(ctx context.Context, queue string) (jetstream.Consumer, error) { return nil, nil }
