package producer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/job"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPublishesEverySlotAtItsInstant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		for i := range 100 {
			b.apply(every(fmt.Sprint("job", i), "* * * * * *", ""))
		}
		start := time.Now()
		p := b.start()
		advance(time.Minute + 100*time.Millisecond)
		p.stop()
		if n := len(b.stored); n != 100*60 {
			t.Errorf("%d slots stored, want 6000", n)
		}
		for id, at := range b.storedAt {
			if late := at.Sub(b.stored[id].Due); late < 0 || late > 20*time.Millisecond {
				t.Errorf("%s stored %v after its due time", id, late)
			}
		}
		if wm := b.watermark(); wm.Time.Before(start.Add(58*time.Second)) || wm.Revision != 100 {
			t.Errorf("watermark %v at revision %d", wm.Time, wm.Revision)
		}
		if s := p.Stats(); s.Published != 6000 || s.Folded != 0 || s.Retried != 0 || s.Missed != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

var _ = job.ErrConflict
