package base

import (
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/cronce-io/cronce/internal/action"
)

// traceErrors logs what the SDK reports: once a minute, since a collector that is
// away is reported with every batch. Collectors answer with what they were sent.
type traceErrors struct {
	a       *App
	secrets []string

	mu   sync.Mutex
	last time.Time
}

// Handle is otel.ErrorHandler's.
func (e *traceErrors) Handle(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Since(e.last) > time.Minute {
		e.last = time.Now()
		e.a.Log.Warn("traces are not exported; slots are not affected", "error", action.Hidden(err, e.secrets))
	}
}

// traceSettings logs what the SDK does not understand of the environment. It is a
// logr.LogSink; what the SDK quotes with an error, which may be a secret, is left out.
type traceSettings struct {
	a       *App
	secrets []string
}

func (s traceSettings) Init(logr.RuntimeInfo)          {}
func (s traceSettings) Enabled(int) bool               { return false } // of what is no error
func (s traceSettings) Info(int, string, ...any)       {}
func (s traceSettings) WithValues(...any) logr.LogSink { return s }
func (s traceSettings) WithName(string) logr.LogSink   { return s }
func (s traceSettings) Error(err error, msg string, _ ...any) {
	s.a.Log.Warn("OpenTelemetry's settings in the environment are not all understood", "at", msg, "error", action.Hidden(err, s.secrets))
}

// traceSecrets is what must not be shown of the exporter's settings: the headers'
// values, also of one that is not written as it should be, and what is private of
// URLs.
func traceSecrets(getenv func(string) string) (secrets []string) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		for pair := range strings.SplitSeq(getenv(name), ",") {
			_, value, ok := strings.Cut(pair, "=")
			if !ok {
				value = pair
			}
			secrets = append(secrets, formsOf(strings.TrimSpace(value))...)
			if plain, err := url.PathUnescape(value); err == nil {
				secrets = append(secrets, formsOf(strings.TrimSpace(plain))...)
			}
		}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		u, err := url.Parse(getenv(name))
		if err != nil || u.Host == "" {
			secrets = append(secrets, formsOf(getenv(name))...)
			continue
		}
		secrets = append(secrets, action.URLSecrets(u)...)
	}
	return secrets
}

// formsOf are the forms in which a secret may be shown; none of an empty one.
func formsOf(secret string) []string {
	if secret == "" {
		return nil
	}
	return action.Secret(secret)
}
