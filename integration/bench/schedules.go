package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// schedulesPeer is the message schedules of nats-server, with a consumer that acks each message. It
// records no outcomes.
type schedulesPeer struct {
	url    string
	nc     *nats.Conn
	js     jetstream.JetStream
	handle func([]byte)
	next   int
}

const scheduled = "bench_scheduled"

func (p *schedulesPeer) name() string { return "nats-server schedules" }
func (p *schedulesPeer) settings() string {
	return "one server, file storage, sync_interval 2m (the default); no claim, no record, no retry policy: what fired is acked"
}

func (p *schedulesPeer) open(ctx context.Context, handle func([]byte)) (_ func() error, err error) {
	p.handle = handle
	if p.nc, err = nats.Connect(p.url); err != nil {
		return nil, err
	}
	if p.js, err = jetstream.New(p.nc, jetstream.WithPublishAsyncMaxPending(1<<14)); err != nil {
		return nil, err
	}
	_, err = p.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: scheduled, Subjects: []string{scheduled + ".>"}, Retention: jetstream.WorkQueuePolicy, AllowMsgSchedules: true, AllowRollup: true,
	})
	return func() error {
		defer p.nc.Close()
		return p.js.DeleteStream(context.WithoutCancel(ctx), scheduled)
	}, err
}

func (p *schedulesPeer) enter(ctx context.Context, at time.Time, payloads [][]byte) error {
	for _, data := range payloads {
		p.next++
		m := &nats.Msg{Subject: scheduled + ".due", Data: data, Header: nats.Header{}}
		if !at.IsZero() {
			m.Subject = fmt.Sprintf("%s.set.%d", scheduled, p.next)
			m.Header.Set("Nats-Schedule", "@at "+at.UTC().Format(time.RFC3339Nano))
			m.Header.Set("Nats-Schedule-Target", scheduled+".due")
		}
		if _, err := p.js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute)); err != nil {
			return err
		}
	}
	select {
	case <-p.js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *schedulesPeer) work(ctx context.Context) error {
	queue, err := p.js.CreateOrUpdateConsumer(ctx, scheduled, jetstream.ConsumerConfig{
		Durable: "due", FilterSubject: scheduled + ".due", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 100_000,
	})
	if err != nil {
		return err
	}
	consuming, err := queue.Consume(func(m jetstream.Msg) {
		p.handle(m.Data())
		_ = m.Ack() // if the ack is lost, the message is redelivered and counted again
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	consuming.Stop()
	<-consuming.Closed()
	return nil
}
