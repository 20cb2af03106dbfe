package producer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// slowReads answers each read of the watermark late.
type slowReads struct {
	Watermark
	late time.Duration
}

func (s slowReads) Read(ctx context.Context) (exchange.Watermark, uint64, error) {
	if err := sleep(ctx, s.late); err != nil {
		return exchange.Watermark{}, 0, job.ErrUnknown
	}
	return s.Watermark.Read(ctx)
}

// A third of the default lease is 6.6 s.
func TestProducerBeginsBehindABrokerWhoseAnswersTakeSixSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		b.apply(every("report", "* * * * * *", job.CatchUpAll))
		r := b.start(func(c *Config, v *view) { c.Watermark = slowReads{v, 6 * time.Second} })
		advance(time.Minute)
		stored := len(b.messages())
		r.stop()
		if stored < 30 {
			t.Errorf("%d slots stored within a minute", stored)
		}
	})
}
