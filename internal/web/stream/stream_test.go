package stream_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/cronce-io/cronce/internal/web/stream"
)

func TestFollowEndsAtOnceForAHeadRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := stream.New(httptest.NewRecorder(), httptest.NewRequest(http.MethodHead, "/", nil), "text/event-stream")
		ended := make(chan struct{})
		go func() {
			stream.Follow(t.Context(), w, make(chan int), "", func(int) error { return nil })
			close(ended)
		}()
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("the answer to a HEAD request goes on, and blocks the connection")
		}
	})
}
