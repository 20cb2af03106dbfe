package natstest

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Strand makes the server strand all messages of the queue "default": the server keeps them, and
// never redelivers them. For that, Strand pulls the messages, and then purges those of an unused
// job, which it published itself. After the next ack, the server redelivers none of the messages
// that were in flight. Strand returns the consumer of the queue. If Strand fails, the server does
// not strand messages any more, and the code that handles them is no longer needed.
func Strand(t testing.TB, js jetstream.JetStream, namespace string) jetstream.Consumer {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	ctx, subject := t.Context(), namespace+".slot.default.unused"
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
	Eventually(t, "the server to forget what was in flight", func() bool {
		info, err := queue.Info(ctx)
		return err == nil && info.NumAckPending == 0
	})
	return queue
}

// Take pulls n messages.
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
