package metrics_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ExampleNew() {
	nc, err := nats.Connect(nats.DefaultURL)
	if err != nil {
		return
	}
	m := metrics.New()
	prometheus.MustRegister(m)
	s, err := cronce.New(context.Background(), nc, cronce.WithObserver(m))
	if err != nil {
		return
	}
	_ = s.Run(context.Background())
}

func TestSchedulerIsMeasuredAndSaysWhenItIsReady(t *testing.T) {
	t.Parallel()
	m, ran := metrics.New(), make(chan struct{}, 100)
	s, err := cronce.New(t.Context(), natstest.Run(t).Conn(), cronce.WithObserver(m))
	if err != nil {
		t.Fatal(err)
	}
	err = s.Handle(job.Job{Name: "tick", Schedule: "* * * * * *"}, func(context.Context, job.Run) error {
		ran <- struct{}{}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Ready() == nil || s.Live() != nil {
		t.Errorf("before Run: ready %v, live %v", s.Ready(), s.Live())
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-ran
	<-ran
	if err := s.Ready(); err != nil {
		t.Errorf("it runs slots: %v", err)
	}
	natstest.Eventually(t, "the watermark to be asked for", func() bool { return gather(t, m)["cronce_watermark_lag_seconds"] != nil })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	families := gather(t, m)
	attempts := families["cronce_slot_attempts_total"].GetMetric()[0].GetCounter().GetValue()
	if attempts != float64(2+len(ran)) {
		t.Errorf("%v attempts, and %d ran", attempts, 2+len(ran))
	}
	if lag := families["cronce_watermark_lag_seconds"].GetMetric()[0].GetGauge().GetValue(); lag > 10 {
		t.Errorf("the watermark lags by %v", time.Duration(lag*float64(time.Second)))
	}
}
