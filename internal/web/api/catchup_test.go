package api

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/web/stream"
	"github.com/cronce-io/cronce/job"
)

// keptEvents is a broker that keeps as many events. After it has sent some of them, it is silent.
type keptEvents struct {
	kept, sends uint64
	away        error // the answer to later questions
}

func (k *keptEvents) LastSequence(context.Context) (uint64, error) {
	if k.sends == 0 {
		return 0, k.away
	}
	return k.kept, nil
}

func (k *keptEvents) Events(ctx context.Context, f client.EventFilter) iter.Seq2[client.Event, error] {
	return func(yield func(client.Event, error) bool) {
		for sequence := *f.After + 1; k.sends > 0; sequence++ {
			k.sends--
			if ctx.Err() != nil || !yield(client.Event{Event: job.Event{Kind: job.EventFailed}, Sequence: sequence}, nil) {
				return
			}
		}
		<-ctx.Done()
	}
}

// slowClient takes a time for each write.
type slowClient struct {
	*httptest.ResponseRecorder
	takes time.Duration
}

func (c *slowClient) Write(p []byte) (int, error) {
	time.Sleep(c.takes) // in the bubble
	return c.ResponseRecorder.Write(p)
}

func TestEventStreamLeavesOutNoKeptEvent(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	for name, c := range map[string]struct {
		events keptEvents
		takes  time.Duration
		sent   int
		want   error
	}{
		"a slow client":                   {keptEvents{kept: 20, sends: 20}, 6 * time.Second, 20, nil},
		"the newest event is not there":   {keptEvents{kept: 20, sends: 19}, 0, 19, nil},
		"a broker that does not go on":    {keptEvents{kept: 20, sends: 5, away: away}, 0, 5, away},
		"a slow client, a broker is away": {keptEvents{kept: 20, sends: 5, away: away}, 6 * time.Second, 5, away},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &slowClient{httptest.NewRecorder(), c.takes}
				s := &sse{to: stream.New(w, httptest.NewRequest(http.MethodGet, "/", nil), "text/event-stream")}
				if err := s.catchUp(t.Context(), &c.events, c.events.kept); !errors.Is(err, c.want) {
					t.Errorf("catchUp = %v, want %v", err, c.want)
				}
				if n := strings.Count(w.Body.String(), "event: failed"); n != c.sent {
					t.Errorf("%d of %d events were sent", n, c.sent)
				}
			})
		})
	}
}
