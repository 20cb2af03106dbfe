package board

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/lab/memstore"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// While a new board is read, a page that is opened shows the one before, unless the reading lasts too
// long. A page that is refreshed waits for a board that has the news.
func TestBoardHasTheNewsUnlessAnOldOneIsAccepted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var takes time.Duration
		s := NewSource(ctx, nil)
		s.read = func(context.Context) (*Board, error) {
			b := &Board{Now: time.Now()}
			time.Sleep(takes)
			return b, nil
		}
		get := func(news time.Time, acceptOld bool, want time.Time) {
			t.Helper()
			if b, err := s.Get(ctx, news, acceptOld); err != nil || !b.Now.Equal(want) {
				t.Errorf("%+v, %v, want the board of %v", b, err, want)
			}
		}
		first := time.Now()
		get(first, false, first)
		time.Sleep(time.Second)
		takes = slow / 2
		second := time.Now()
		get(second, true, first)
		get(second, false, second)
		time.Sleep(time.Second)
		takes = 3 * slow
		third := time.Now()
		get(third, true, second)
		time.Sleep(slow)
		get(third, true, third)
		stop()
		s.Wait()
		if b, err := s.Get(t.Context(), time.Now(), false); err == nil {
			t.Errorf("%+v after the end", b)
		}
	})
}

func TestFirstBoardThatIsStillBeingReadIsAnErrorThatSaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		s := NewSource(ctx, nil)
		s.read = func(context.Context) (*Board, error) {
			time.Sleep(time.Minute)
			return &Board{}, nil
		}
		for i := range 3 {
			asking, cancel := context.WithTimeout(ctx, time.Second)
			_, err := s.Get(asking, time.Now(), true)
			if slow, ok := errors.AsType[*ReadingError](err); !ok || slow.For != time.Duration(i+1)*time.Second || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
			cancel()
		}
		stop()
		s.Wait()
	})
}

// manyUnreadable is a ledger with more records than a board keeps errors, which a newer version wrote.
type manyUnreadable struct{ attach.Ledger }

func (manyUnreadable) List(context.Context, kv.ListFilter) iter.Seq2[kv.LedgerEntry, error] {
	return func(yield func(kv.LedgerEntry, error) bool) {
		for range 2 * maxUnreadable {
			if !yield(kv.LedgerEntry{}, job.ErrVersion) {
				return
			}
		}
	}
}

func TestBoardLeavesOutManyRecordsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	store, now := memstore.New(), time.Now()
	c := client.Attach(attach.Parts{
		Jobs: store.Jobs(), Nodes: store.Nodes(), Ledger: manyUnreadable{}, Settings: job.Settings{}.WithDefaults(),
		Now: func(context.Context) (time.Time, error) { return now, nil },
	})
	b, err := reader{c, &Board{written: now}}.read(t.Context())
	if err != nil || len(b.Unreadable) != maxUnreadable {
		t.Errorf("%d errors, %v", len(b.Unreadable), err)
	}
}
