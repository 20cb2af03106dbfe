package base

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/cronce-io/cronce/internal/action"
	"github.com/cronce-io/cronce/internal/action/httpaction"
)

// flushFor limits the export of the last spans.
const flushFor = 3 * time.Second

// exports reports whether the OpenTelemetry variables in the environment enable traces. An
// exporter or protocol that is not built in is an error.
func exports(getenv func(string) string) (bool, error) {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	endpoint := cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	switch exporter := getenv("OTEL_TRACES_EXPORTER"); {
	case exporter == "none", exporter == "" && endpoint == "":
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, fmt.Errorf("invalid OTEL_TRACES_EXPORTER %q: want otlp, the only exporter that is built in, or none", exporter)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		switch protocol := getenv(name); protocol {
		case "":
			continue
		case "http/protobuf":
			return true, nil
		default:
			return false, fmt.Errorf("invalid %s %q: only http/protobuf is built in; collectors take it on port 4318", name, protocol)
		}
	}
	return true, nil
}

// Tracing starts to export traces if the environment enables it; the exporter reads its
// settings from there too. Otherwise the provider is nil. stop exports the last spans.
func (a *App) Tracing(ctx context.Context) (provider trace.TracerProvider, stop func(), err error) {
	on, err := exports(a.Getenv)
	if err != nil {
		return nil, nil, Usage(err)
	}
	if !on {
		return nil, func() {}, nil
	}
	secrets := traceSecrets(a.Getenv)
	otel.SetErrorHandler(&traceErrors{a: a, secrets: secrets}) // the SDK has no other way to report errors
	otel.SetLogger(logr.New(traceSettings{a, secrets}))        // else the SDK writes to stderr
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("export traces: %w", action.Hidden(err, secrets))
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", "cronce"), attribute.String("service.version", Version())), resource.WithFromEnv())
	if err != nil {
		a.Log.Warn("cannot read all resource attributes from the environment", "error", err)
	}
	p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	return p, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushFor)
		defer cancel()
		if err := p.Shutdown(last); err != nil {
			a.Log.Warn("last traces not exported", "error", action.Hidden(err, secrets))
		}
	}, nil
}

// Collector is the address that traces go to, without secrets, for the log.
func Collector(getenv func(string) string) string {
	at := cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), "http://localhost:4318")
	u, err := url.Parse(at)
	if err != nil {
		return "the endpoint in the environment"
	}
	return httpaction.Show(u)
}

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
