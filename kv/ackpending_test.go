package kv_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// A server, an account or a stream may limit the unacked messages of a consumer. Each worker failed with
// error 10121 then, and tried again for ever.
func TestConsumersTakeTheLimitOfUnackedMessages(t *testing.T) {
	t.Parallel()
	const limit = 500
	srv := natstest.Run(t, func(o *server.Options) { o.JetStreamLimits.MaxAckPending = limit })
	s := open(t, srv.JetStream(), kv.Options{})
	ctx := within(t, time.Minute)
	for range 2 { // created, then found
		c, err := s.Slots().Queue(ctx, "default")
		if err != nil {
			t.Fatal(err)
		}
		if got := c.CachedInfo().Config.MaxAckPending; got != limit {
			t.Errorf("max ack pending %d, want the limit of %d", got, limit)
		}
		if _, err := s.Timers().Queue(ctx, "default"); err != nil {
			t.Errorf("timers: %v", err)
		}
		if _, err := s.Alerts(ctx); err != nil {
			t.Errorf("alerts: %v", err)
		}
	}
	if _, err := space.Setup(ctx, srv.JetStream(), kv.Options{Want: job.Settings{Lease: time.Hour}, Queues: []string{"default", "mail"}}); err != nil {
		t.Errorf("setup: %v", err)
	}
	_, survey, err := kv.Examine(ctx, srv.JetStream(), kv.Options{})
	if err != nil || len(survey.Differences) > 0 || len(survey.Queues) != 2 {
		t.Errorf("the queues are %+v, with the differences %v, %v", survey.Queues, survey.Differences, err)
	}
}
