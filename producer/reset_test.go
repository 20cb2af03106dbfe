package producer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// resetTo stores a watermark as an operator does: at any revision.
func (b *broker) resetTo(mark exchange.Watermark) {
	b.mu.Lock()
	defer b.mu.Unlock()
	mark.Nonce = "operator"
	b.mark, b.markRev, b.markErr = mark, b.markRev+1, nil
}

// A clock in the future carried the watermark there. When the clock is right again, nothing
// falls due. When the watermark is reset, running producers start over from it.
func TestProducersFollowAWatermarkThatIsReset(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for name, begin := range map[string]func(b *broker){
		"they ran when the clock was wrong": func(b *broker) {
			p, q := b.start(), b.start()
			advance(10 * time.Second)
			p.step(30 * time.Minute) // a larger step is not plausible
			q.step(30 * time.Minute)
			advance(10 * time.Second)
			p.step(-30 * time.Minute)
			q.step(-30 * time.Minute)
		},
		"they found it so": func(b *broker) {
			b.resetTo(exchange.Watermark{Time: time.Now().Add(10 * year), Revision: 1})
			b.start()
			b.start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				def := every("j", "*/10 * * * * *", job.CatchUpAll)
				b.apply(def)
				from := time.Now()
				begin(b)
				advance(time.Minute)
				if wm := b.watermark(); !wm.Time.After(time.Now().Add(20 * time.Minute)) {
					t.Fatalf("the watermark is at %v: it is not ahead", wm.Time)
				}
				b.take()
				advance(time.Minute)
				if got := b.take(); len(got) > 0 {
					t.Fatalf("under a watermark ahead of the clock %d slots were published", len(got))
				}
				reset := time.Now()
				b.resetTo(exchange.Watermark{Time: from, RegistryTime: from})
				advance(time.Minute)
				got := map[string]bool{}
				for _, m := range b.take() {
					got[m.Slot.ID()] = true
				}
				for _, id := range slots(t, def, from, time.Now().Add(-time.Second)) {
					if !got[id] {
						t.Errorf("%s was not published after the reset", id)
					}
				}
				if wm := b.watermark(); wm.Time.Before(reset) || wm.Time.After(time.Now()) || wm.Revision == 0 {
					t.Errorf("the watermark is %+v, a minute after %v", wm, reset)
				}
			})
		})
	}
}

// The registry was created anew, and its revisions start at 1. A watermark with an old
// revision cannot be overtaken until it is reset.
func TestProducersFollowARevisionThatIsReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		b.apply(every("j", "*/10 * * * * *", job.CatchUpAll))
		from := time.Now()
		b.resetTo(exchange.Watermark{Time: from, Revision: 1000, RegistryTime: from})
		b.start()
		b.start()
		advance(time.Minute)
		if wm := b.watermark(); wm.Revision != 1000 || !wm.Time.Equal(from) {
			t.Fatalf("the watermark moved to %+v", wm)
		}
		b.resetTo(exchange.Watermark{Time: from, RegistryTime: from})
		advance(time.Minute)
		if wm := b.watermark(); wm.Revision == 0 || wm.Revision >= 1000 || time.Since(wm.Time) > 5*time.Second {
			t.Errorf("the watermark is %+v, a minute after its reset", wm)
		}
	})
}

// A producer whose own agenda is right meets the reset when it writes. It does not
// overwrite the operator's position.
func TestAProducerDoesNotOverwriteAReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		def := every("j", "*/10 * * * * *", job.CatchUpAll)
		b.apply(def)
		from := time.Now()
		b.start()
		b.start()
		advance(5 * time.Minute)
		until := time.Now()
		b.resetTo(exchange.Watermark{Time: from, RegistryTime: from})
		b.take()
		advance(time.Minute)
		got := map[string]bool{}
		for _, m := range b.take() {
			got[m.Slot.ID()] = true
		}
		for _, id := range slots(t, def, from, until) {
			if !got[id] {
				t.Errorf("%s was not published again", id)
			}
		}
		if wm := b.watermark(); time.Since(wm.Time) > 5*time.Second {
			t.Errorf("the watermark is %+v, a minute after its reset", wm)
		}
	})
}
