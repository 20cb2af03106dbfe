package listener

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"
)

// Log returns a handler that logs each request of next when it has ended. It leaves out the
// query, in which an OpenID provider sends the code of a login.
func Log(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		seen := &entry{}
		counted := &writer{ResponseWriter: w}
		defer func() {
			log.LogAttrs(r.Context(), slog.LevelInfo, "request", slog.String("method", r.Method), slog.String("path", r.URL.Path),
				slog.Int("status", cmp.Or(counted.code, http.StatusOK)), slog.Int64("bytes", counted.bytes), slog.Duration("duration", time.Since(began)),
				slog.String("user", seen.user), slog.String("remote", r.RemoteAddr))
		}()
		next.ServeHTTP(counted, r.WithContext(context.WithValue(r.Context(), entryKey{}, seen)))
	})
}

type entryKey struct{}

// entry holds what handlers add to the log line of a request.
type entry struct{ user string }

// SetUser names the user of a request for its line in the log.
func SetUser(ctx context.Context, name string) {
	if e, ok := ctx.Value(entryKey{}).(*entry); ok {
		e.user = name
	}
}

// writer remembers the status of an answer and counts its bytes.
type writer struct {
	http.ResponseWriter
	code  int
	bytes int64
}

// Unwrap lets http.ResponseController reach the connection.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) WriteHeader(code int) {
	if w.code == 0 && code >= http.StatusOK {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *writer) Write(p []byte) (int, error) {
	w.code = cmp.Or(w.code, http.StatusOK)
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}
