package shell

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/job"
)

// quiet is a broker that answers, and says nothing.
type quiet struct{ attach.News }

func (quiet) LastEvent(context.Context) (uint64, error) { return 1, nil }

// pipes is a listener whose connections have no buffer: what is not read blocks the writer.
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
		l := newLive(ctx, slog.New(slog.DiscardHandler), Config{
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
		l.wait()
		server.Close()
		<-served
		<-ended
		if heard < beats-1 {
			t.Errorf("the browser that reads got %d messages of %d beats", heard, beats)
		}
	})
}
