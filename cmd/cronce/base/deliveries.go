package base

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
)

// How long a command waits for an answer before it asks whether deliveries arrive, and how long it waits
// for these.
const (
	suspectAfter  = 3 * time.Second
	deliveryLimit = time.Second
)

// ErrNoDeliveries is the error for an account that reaches the streams through an import that lets requests
// and their first answers through, and no more messages.
var ErrNoDeliveries = errors.New("the server answers requests, but the messages of a consumer do not arrive: this account imports the streams of another one, without response_type: stream on the export of $JS.API.>, or without the subjects of deliveries")

// DeliveriesHint is what to do about ErrNoDeliveries.
const DeliveriesHint = "cronce auth --accounts, which prints a configuration of accounts that works"

// WithoutDeliveries reports whether the server answers a request and does not deliver the messages of a
// consumer. It is false if the login may not create the consumer, so that this is not known.
func WithoutDeliveries(ctx context.Context, js jetstream.JetStream, namespace string) bool {
	ctx, cancel := context.WithTimeout(ctx, 4*deliveryLimit)
	defer cancel()
	stream := "KV_" + layout.Bucket(namespace, "jobs") // each node follows it, so its login may create the consumer
	info, err := js.Stream(ctx, stream)
	if err == nil && info.CachedInfo().State.Msgs == 0 {
		stream = "KV_" + layout.Bucket(namespace, "state") // it has the settings, at least
		info, err = js.Stream(ctx, stream)
	}
	if err != nil || info.CachedInfo().State.Msgs == 0 {
		return false
	}
	consumer, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy, InactiveThreshold: 4 * deliveryLimit, MemoryStorage: true})
	if err != nil {
		return false
	}
	// A slow server is none of these: it answers a request in between.
	for range 2 {
		if delivers(js, stream, consumer.CachedInfo().Name) || !isPrompt(ctx, js, stream) {
			return false
		}
	}
	return true
}

// isPrompt reports whether the server answers a request much faster than a delivery may take.
func isPrompt(ctx context.Context, js jetstream.JetStream, stream string) bool {
	ctx, cancel := context.WithTimeout(ctx, deliveryLimit/4)
	defer cancel()
	_, err := js.Stream(ctx, stream)
	return err == nil
}

// delivers reports whether a second message arrives: of the stream, or that there are no more.
func delivers(js jetstream.JetStream, stream, consumer string) bool {
	nc, prefix := js.Conn(), js.Options().APIPrefix
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		return true
	}
	defer func() { _ = answers.Unsubscribe() }() // the connection may be closed
	if err := nc.PublishRequest(apiPrefix(prefix, js.Options().Domain)+"CONSUMER.MSG.NEXT."+stream+"."+consumer, inbox, []byte(`{"batch":2,"no_wait":true}`)); err != nil {
		return true
	}
	for range 2 {
		if _, err := answers.NextMsg(deliveryLimit); err != nil {
			return !errors.Is(err, nats.ErrTimeout)
		}
	}
	return true
}

// apiPrefix returns the prefix of the subjects of JetStream's API, with its last dot.
func apiPrefix(prefix, domain string) string {
	switch {
	case domain != "":
		return "$JS." + domain + ".API."
	case prefix == "":
		return "$JS.API."
	case prefix[len(prefix)-1] == '.':
		return prefix
	}
	return prefix + "."
}
