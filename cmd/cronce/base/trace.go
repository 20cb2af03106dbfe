package base

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"
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

// flushFor is how long the last spans may take to be exported.
const flushFor = 3 * time.Second

// exports reports whether the environment asks for traces, by the variables that
// OpenTelemetry gives every program. What it asks for and is not built in is an
// error.
func exports(getenv func(string) string) (bool, error) {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	endpoint := cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	switch exporter := getenv("OTEL_TRACES_EXPORTER"); {
	case exporter == "none", exporter == "" && endpoint == "":
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, fmt.Errorf("invalid OTEL_TRACES_EXPORTER %q: only otlp is built in, and none", exporter)
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

// Tracing starts to export traces if the environment asks for it: where to, how and
// which, is read from it as well. The provider is nil when it does not. stop sends
// what is left.
func (a *App) Tracing(ctx context.Context) (provider trace.TracerProvider, stop func(), err error) {
	on, err := exports(a.Getenv)
	if err != nil {
		return nil, nil, Usage(err)
	}
	if !on {
		return nil, func() {}, nil
	}
	secrets := traceSecrets(a.Getenv)
	otel.SetErrorHandler(&traceErrors{a: a, secrets: secrets}) // the SDK has no other way to tell
	otel.SetLogger(logr.New(traceSettings{a, secrets}))        // and would write to stderr by itself
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("export traces: %w", action.Hidden(err, secrets))
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", "cronce"), attribute.String("service.version", Version())), resource.WithFromEnv())
	if err != nil {
		a.Log.Warn("not all that the environment says of this service is understood", "error", err)
	}
	p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	return p, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushFor)
		defer cancel()
		if err := p.Shutdown(last); err != nil {
			a.Log.Warn("the last traces were not exported", "error", action.Hidden(err, secrets))
		}
	}, nil
}

// Collector is where traces go, for the log: without what may be secret.
func Collector(getenv func(string) string) string {
	at := cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), "http://localhost:4318")
	u, err := url.Parse(at)
	if err != nil {
		return "where the environment says"
	}
	return httpaction.Show(u)
}
