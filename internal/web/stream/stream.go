// Package stream writes HTTP answers that last: events, and the output of a running slot. It sets
// their headers and timeouts.
package stream

import (
	"context"
	"io"
	"net/http"
	"time"
)

const (
	// silence is the interval at which Follow writes something that the reader ignores, so that proxies
	// keep the connection.
	silence = 15 * time.Second

	// WriteTime bounds a write to a client that reads slowly.
	WriteTime = 10 * time.Second
)

// Writer writes one answer. Each Write reaches the client at once.
type Writer struct {
	w    http.ResponseWriter
	to   *http.ResponseController
	head bool // the request is a HEAD request
}

// New sets the headers of an answer of a media type.
func New(w http.ResponseWriter, r *http.Request, media string) *Writer {
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would hold the answer back
	return &Writer{w, http.NewResponseController(w), r.Method == http.MethodHead}
}

// Write implements io.Writer.
func (s *Writer) Write(p []byte) (int, error) {
	_ = s.to.SetWriteDeadline(time.Now().Add(WriteTime)) // not all servers support deadlines
	n, err := s.w.Write(p)
	if err != nil {
		return n, err
	}
	return n, s.to.Flush()
}

// Follow calls write with each value, until ctx ends, the channel is closed or a write fails. From time
// to time it writes ignored, a text that the reader ignores. The answer to a HEAD request has no body,
// so Follow then returns at once.
func Follow[T any](ctx context.Context, to *Writer, values <-chan T, ignored string, write func(T) error) {
	if to.head {
		return
	}
	tick := time.NewTicker(silence)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case v, ok := <-values:
			if !ok {
				return
			}
			err = write(v)
		case <-tick.C:
			_, err = io.WriteString(to, ignored)
		}
		if err != nil {
			return
		}
	}
}
