package board

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// While a new board is read, a page that is opened in a hurry shows the one before. One that has
// heard news waits for a board that has them.
func TestBoardHasTheNewsUnlessInAHurry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		s := NewSource(ctx, nil)
		before := &Board{Began: time.Now()}
		s.last = before
		time.Sleep(time.Second)
		news := time.Now()
		f := &flight{began: news, done: make(chan struct{})}
		s.flight = f
		read := &Board{Began: news}
		go func() {
			time.Sleep(slow / 2)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.last, s.flight = read, nil
			close(f.done)
		}()
		if b, err := s.Get(ctx, news, true); err != nil || b != before {
			t.Errorf("in a hurry: %+v, %v, want the board before", b, err)
		}
		if b, err := s.Get(ctx, news, false); err != nil || b != read {
			t.Errorf("after news: %+v, %v, want the board that has them", b, err)
		}
		stop()
		s.Wait()
	})
}
