package board

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
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
			b := &Board{Began: time.Now()}
			time.Sleep(takes)
			return b, nil
		}
		get := func(news time.Time, acceptOld bool, want time.Time) {
			t.Helper()
			if b, err := s.Get(ctx, news, acceptOld); err != nil || !b.Began.Equal(want) {
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
