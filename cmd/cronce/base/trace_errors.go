package base

import (
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/cronce-io/cronce/internal/action"
)

// traceErrors logs errors of the SDK, at most once a minute, because the SDK reports an
// unreachable collector with every batch. It hides secrets, because the answer of a
// collector may quote the request.
type traceErrors struct {
	a       *App
	secrets []string

	mu   sync.Mutex
	last time.Time
}

// Handle implements otel.ErrorHandler.
func (e *traceErrors) Handle(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Since(e.last) > time.Minute {
		e.last = time.Now()
		e.a.Log.Warn("traces not exported; slots are not affected", "error", action.Hidden(err, e.secrets))
	}
}

// traceSettings logs settings in the environment that the SDK cannot read. It is a
// logr.LogSink. It drops the values that the SDK logs with an error, which may be secrets.
type traceSettings struct {
	a       *App
	secrets []string
}

func (s traceSettings) Init(logr.RuntimeInfo)          {}
func (s traceSettings) Enabled(int) bool               { return false } // only errors are logged
func (s traceSettings) Info(int, string, ...any)       {}
func (s traceSettings) WithValues(...any) logr.LogSink { return s }
func (s traceSettings) WithName(string) logr.LogSink   { return s }
func (s traceSettings) Error(err error, msg string, _ ...any) {
	s.a.Log.Warn("cannot read all OpenTelemetry settings in the environment", "at", msg, "error", action.Hidden(err, s.secrets))
}

// traceSecrets lists the secrets in the exporter's settings: the values of headers, even of
// malformed ones, and the private parts of URLs.
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

// formsOf lists the forms in which a secret may appear. An empty secret has none.
func formsOf(secret string) []string {
	if secret == "" {
		return nil
	}
	return action.Secret(secret)
}
