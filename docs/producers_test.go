package docs_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/producer"
)

// producerCase is a producer that starts at Now: what it finds, what it
// publishes, and where it then moves the watermark.
type producerCase struct {
	Name    string    `json:"name"`
	Now     time.Time `json:"now"`
	Horizon duration  `json:"horizon"`

	// ClockError bounds how far Now is off.
	ClockError duration `json:"clock_error,omitempty"`

	Watermark        *position `json:"watermark,omitempty"`
	Definition       stored    `json:"definition"`
	RegistryRevision uint64    `json:"registry_revision"`

	Messages []published `json:"messages,omitempty"`
	After    *position   `json:"watermark_after"`
}

type position struct {
	Time         time.Time `json:"time"`
	Revision     uint64    `json:"registry_revision"`
	RegistryTime time.Time `json:"registry_time,omitzero"`
}

type published struct {
	Queue   string  `json:"queue"`
	Headers headers `json:"headers"`

	// Body is the body's bytes.
	Body string `json:"body,omitempty"`
}

func TestProducers(t *testing.T) {
	t.Parallel()
	hold(t, "producers.json", answerProducer)
}

func answerProducer(t *testing.T, c producerCase) producerCase {
	t.Helper()
	b := &broker{t: t, c: c, written: make(chan struct{})}
	synctest.Test(t, func(t *testing.T) {
		p, err := producer.New(producer.Config{
			Node: "a-1-1-x", Registry: b, Watermark: b, Slots: b, Clock: b, Horizon: time.Duration(c.Horizon),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		b.written = make(chan struct{}) // of the bubble
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		select {
		case <-b.written:
		case <-ctx.Done():
			t.Errorf("%s: the watermark was not moved", c.Name)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	c.After, c.Messages = b.after, b.messages
	return c
}

// broker is all that a producer sees of one, at an instant that does not pass.
type broker struct {
	t        *testing.T
	c        producerCase
	messages []published
	after    *position
	written  chan struct{}
}

func (b *broker) Now() time.Time       { return b.c.Now }
func (b *broker) Error() time.Duration { return time.Duration(b.c.ClockError) }
func (b *broker) Plausible() error     { return nil }
func (b *broker) Connected() bool      { return true }

func (b *broker) Watch(ctx context.Context, f func(plans.RegistryEvent)) error {
	e := b.c.Definition.entry(b.t)
	f(plans.RegistryEvent{Name: e.Job.Name, Revision: e.Revision, Time: e.Time, Entry: e})
	f(plans.RegistryEvent{Ready: true, Revision: b.c.RegistryRevision})
	<-ctx.Done()
	return nil
}

func (b *broker) Send(queue string, m core.Message, payload []byte, answered func(bool, error)) error {
	b.messages = append(b.messages, published{queue, single(m.Header()), string(payload)})
	answered(false, nil)
	return nil
}

func (b *broker) Read(context.Context) (exchange.Watermark, uint64, error) {
	if b.c.Watermark == nil {
		return exchange.Watermark{}, 0, job.ErrNotFound
	}
	p := b.c.Watermark
	return exchange.Watermark{Time: p.Time, Revision: p.Revision, RegistryTime: p.RegistryTime}, 1, nil
}

func (b *broker) Write(_ context.Context, w exchange.Watermark, revision uint64) (uint64, error) {
	if b.after == nil {
		b.after = &position{w.Time, w.Revision, w.RegistryTime}
		close(b.written)
	}
	return revision + 1, nil
}
