package shell

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/job"
)

// quiet is a broker that answers, and sends no events.
type quiet struct{ attach.News }

func (quiet) LastEvent(context.Context) (uint64, error) { return 1, nil }

// pipes is a listener whose connections have no buffer: a write blocks until it is read.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, errors.New("closed")
	}
}

func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// browser asks for the stream, and reads its head.
func (p pipes) browser(t *testing.T) *bufio.Reader {
	t.Helper()
	mine, theirs := net.Pipe()
	t.Cleanup(func() { mine.Close() })
	p.conns <- theirs
	if _, err := mine.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(mine)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, "retry:") {
			return r
		}
	}
}

// A browser that does not read costs four messages at most, and its stream is closed. The others
// do not notice it.
func TestStreamOfASlowReaderIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		events := make(chan client.Event)
		l := newLive(ctx, Config{
			Client:    client.Attach(attach.Parts{News: quiet{}}),
			Subscribe: func(context.Context) (<-chan client.Event, func(), error) { return events, func() {}, nil },
		})
		p := pipes{make(chan net.Conn), make(chan struct{})}
		server := &http.Server{Handler: http.HandlerFunc(l.serve), ReadHeaderTimeout: time.Minute}
		served := make(chan error, 1)
		go func() { served <- server.Serve(p) }()
		p.browser(t) // it reads no more
		reading, heard := p.browser(t), 0
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				line, err := reading.ReadString('\n')
				if err != nil {
					return
				}
				if strings.HasPrefix(line, "event: touched") {
					heard++
				}
			}
		}()
		synctest.Wait()
		const beats = 30
		for range beats {
			events <- client.Event{Event: job.Event{Kind: job.EventSucceeded, Job: "report"}}
			time.Sleep(beat)
		}
		synctest.Wait()
		l.mu.Lock()
		open := len(l.streams)
		l.mu.Unlock()
		if open != 1 {
			t.Errorf("%d streams are open, want that of the browser that reads", open)
		}
		cancel()
		l.ended.Wait()
		server.Close()
		<-served
		<-ended
		if heard < beats-1 {
			t.Errorf("the browser that reads got %d messages of %d beats", heard, beats)
		}
	})
}

// The first event after a quiet time is sent at once. While events arrive all the time, each is
// sent within a beat, with one message a beat.
func TestEventsAreSentWithinABeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		events := make(chan client.Event)
		l := newLive(ctx, Config{
			Client:    client.Attach(attach.Parts{News: quiet{}}),
			Subscribe: func(context.Context) (<-chan client.Event, func(), error) { return events, func() {}, nil },
		})
		messages, _, _, _ := l.join()
		<-messages // that of the subscription
		happen := func(name string) { events <- client.Event{Event: job.Event{Kind: job.EventSucceeded, Job: name}} }
		for range 3 {
			time.Sleep(time.Minute)
			began := time.Now()
			happen("report")
			if <-messages; time.Since(began) > gather {
				t.Errorf("the first news after a minute came after %v, want at most %v", time.Since(began), gather)
			}
		}
		const every, lasts = 10 * time.Millisecond, time.Minute
		go func() {
			for i := range int(lasts / every) {
				happen(fmt.Sprint(i))
				time.Sleep(every)
			}
			cancel()
		}()
		began, sent, last := time.Now(), 0, time.Duration(-1)
		for m := range untilDone(ctx, messages) {
			sent++
			var t0 touched
			if _, data, ok := strings.Cut(string(m), "data: "); !ok || json.Unmarshal([]byte(data), &t0) != nil || len(t0.Jobs) == 0 {
				t.Fatalf("message %q", m)
			}
			n, _ := strconv.Atoi(t0.Jobs[0])
			if first := time.Duration(n) * every; first <= last || time.Since(began)-first > beat {
				t.Errorf("message %d names the news of %v after %v, want each once, after at most %v", sent, first, time.Since(began), beat)
			}
			n, _ = strconv.Atoi(t0.Jobs[len(t0.Jobs)-1])
			last = time.Duration(n) * every
		}
		if most := int(lasts/beat) + 1; sent > most || sent < most-2 {
			t.Errorf("%d messages in %v, want %d", sent, lasts, most)
		}
		l.ended.Wait()
	})
}

// The pages refresh themselves when events may have been lost, after live has subscribed again: what
// happened before then reaches none of them.
func TestLiveTellsOfLostEventsOnceItHasSubscribedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		feeds := make(chan chan client.Event, 1) // none: the broker is away
		first := make(chan client.Event)
		feeds <- first
		l := newLive(ctx, Config{
			Client: client.Attach(attach.Parts{News: quiet{}}),
			Subscribe: func(context.Context) (<-chan client.Event, func(), error) {
				select {
				case feed := <-feeds:
					return feed, func() {}, nil
				default:
					return nil, nil, errors.New("away")
				}
			},
		})
		messages, _, _, _ := l.join()
		<-messages // that of the first subscription
		close(first)
		time.Sleep(time.Minute)
		if len(messages) > 0 {
			t.Errorf("%s was sent before the subscription", <-messages)
		}
		feeds <- make(chan client.Event)
		if m := string(<-messages); !strings.Contains(m, `{"all":true}`) {
			t.Errorf("sent %s, want that everything may have changed", m)
		}
		time.Sleep(time.Minute)
		if len(messages) > 0 {
			t.Errorf("then %s was sent", <-messages)
		}
		cancel()
		l.ended.Wait()
	})
}

// A page is read before its browser connects to the stream: what changed in between reached other
// browsers only.
func TestStreamBeginsWithTheChangesSinceItsPageWasRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		events := make(chan client.Event)
		l := newLive(ctx, Config{
			Client:    client.Attach(attach.Parts{News: quiet{}}),
			Subscribe: func(context.Context) (<-chan client.Event, func(), error) { return events, func() {}, nil },
		})
		// touches reports whether the stream of a page tells the browser within a second to refresh everything.
		touches := func(process string, read time.Time) bool {
			reading, end := context.WithTimeout(ctx, time.Second)
			defer end()
			query := url.Values{"process": {process}, "read": {read.UTC().Format(time.RFC3339Nano)}}
			w := httptest.NewRecorder()
			l.serve(w, httptest.NewRequestWithContext(reading, http.MethodGet, "/live?"+query.Encode(), nil))
			return strings.Contains(w.Body.String(), `{"all":true}`)
		}
		if !touches(l.id, time.Now()) {
			t.Error("the first page of a process is not refreshed: before its stream, nothing was subscribed to")
		}
		other, _, _, _ := l.join() // a browser that stays
		time.Sleep(time.Minute)
		if touches(l.id, time.Now()) {
			t.Error("a page is refreshed although nothing has changed")
		}
		if !touches("another", time.Now()) {
			t.Error("a page that another process has read is not refreshed")
		}
		read := time.Now()
		events <- client.Event{Event: job.Event{Kind: job.EventSucceeded, Job: "report"}}
		time.Sleep(beat)
		if !touches(l.id, read) {
			t.Error("a page that was read before the last message is not refreshed")
		}
		time.Sleep(boardAge)
		if touches(l.id, time.Now()) {
			t.Error("a page that was read after the last message is refreshed")
		}
		cancel()
		l.leave(other)
		l.ended.Wait()
	})
}

// untilDone iterates over messages until ctx ends.
func untilDone(ctx context.Context, messages <-chan []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for {
			select {
			case <-ctx.Done():
				return
			case m := <-messages:
				if !yield(m) {
					return
				}
			}
		}
	}
}
