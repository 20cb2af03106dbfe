package board

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// While a new board is read, a page that is opened shows the one before. A page that is refreshed
// waits for a board that has the news.
func TestBoardHasTheNewsUnlessAnOldOneIsAccepted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		s := NewSource(ctx, nil)
		before := &Board{Began: time.Now()}
		s.last = before
		time.Sleep(time.Second)
		news := time.Now()
		f := &reading{began: news, done: make(chan struct{})}
		s.reading = f
		read := &Board{Began: news}
		go func() {
			time.Sleep(slow / 2)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.last, s.reading = read, nil
			close(f.done)
		}()
		if b, err := s.Get(ctx, news, true); err != nil || b != before {
			t.Errorf("old accepted: %+v, %v, want the board before", b, err)
		}
		if b, err := s.Get(ctx, news, false); err != nil || b != read {
			t.Errorf("after news: %+v, %v, want the board that has them", b, err)
		}
		stop()
		s.Wait()
	})
}
