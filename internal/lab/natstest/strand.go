package natstest

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Strand has a worker of the queue "default" take all that waits, and then the
// messages of one job, nobody's, purged by hand: the server gives what else was in
// hand to nobody any more. It returns the queue. Two messages of its own have come
// and gone then. That it comes to its end is a fact about the server: when a newer
// one does not forget, this is no longer needed.
func Strand(t testing.TB, js jetstream.JetStream, namespace string) jetstream.Consumer {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	ctx, subject := t.Context(), namespace+".slot.default.nobodys"
	stream, err := js.Stream(ctx, namespace+"_slots")
	must(err)
	queue, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "default", FilterSubject: namespace + ".slot.default.>", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 200 * time.Millisecond,
	})
	must(err)
	last, err := js.Publish(ctx, subject, nil)
	must(err)
	Take(t, queue, int(last.Sequence))
	must(stream.Purge(ctx, jetstream.WithPurgeSubject(subject)))
	_, err = js.Publish(ctx, subject, nil)
	must(err)
	for _, m := range Take(t, queue, 1) {
		must(m.DoubleAck(ctx))
	}
	Eventually(t, 5*time.Second, "the server to forget what was in hand", func() bool {
		info, err := queue.Info(ctx)
		return err == nil && info.NumAckPending == 0
	})
	return queue
}

// Take takes n messages.
func Take(t testing.TB, queue jetstream.Consumer, n int) (taken []jetstream.Msg) {
	t.Helper()
	batch, err := queue.Fetch(n, jetstream.FetchMaxWait(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for m := range batch.Messages() {
		taken = append(taken, m)
	}
	if len(taken) != n || batch.Error() != nil {
		t.Fatalf("took %d of %d: %v", len(taken), n, batch.Error())
	}
	return taken
}
