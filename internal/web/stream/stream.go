// Package stream writes answers that last: events, and the output of a running slot. It has the
// headers and the timeouts of such answers.
package stream

import (
	"net/http"
	"time"
)

const (
	// Silence is the longest time without a write. A stream with no news then writes something that
	// its reader ignores, so that proxies keep the connection.
	Silence = 15 * time.Second

	// WriteTime bounds a write to a client that reads slowly.
	WriteTime = 10 * time.Second
)

// Writer writes one answer. Each Write reaches the client at once.
type Writer struct {
	w  http.ResponseWriter
	to *http.ResponseController
}

// New sets the headers of an answer of a media type.
func New(w http.ResponseWriter, media string) *Writer {
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would hold the answer back
	return &Writer{w, http.NewResponseController(w)}
}

// Write implements io.Writer.
func (s *Writer) Write(p []byte) (int, error) {
	_ = s.to.SetWriteDeadline(time.Now().Add(WriteTime)) // not all servers have deadlines
	n, err := s.w.Write(p)
	if err != nil {
		return n, err
	}
	return n, s.to.Flush()
}
