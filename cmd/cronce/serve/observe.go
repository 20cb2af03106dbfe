package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/internal/web/auth"
	"github.com/cronce-io/cronce/internal/web/listener"
)

const metricsAddrHelp = "serve Prometheus metrics at /metrics, and /healthz and /readyz, without a login, on this `address`, as in 127.0.0.1:9464 (default: nowhere)"

// checkAddr validates the value of a flag that is an address to listen on, or empty. examplePort is a
// port for the text of the error.
func checkAddr(flag, addr, examplePort string) error {
	if addr == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil || port == "" {
		return fmt.Errorf("invalid --%s %q: want HOST:PORT, as in 127.0.0.1:%s, or :%[3]s for all addresses", flag, addr, examplePort)
	}
	return nil
}

// health holds the checks behind /healthz and /readyz. They are set during the start.
type health struct {
	checks atomic.Pointer[func() (ready []replica.Check, live error)]
}

func (h *health) set(checks func() ([]replica.Check, error)) { h.checks.Store(&checks) }

func (h *health) ask() (ready []replica.Check, live error) {
	if checks := h.checks.Load(); checks != nil {
		return (*checks)()
	}
	return []replica.Check{{Name: "start", Err: errors.New("still connecting to NATS, or opening files or the namespace")}}, nil
}

// metricsPaths are the paths of the handler that newMetricsHandler returns.
var metricsPaths = []string{"/metrics", "/healthz", "/readyz"}

func newMetricsHandler(h *health, measures ...prometheus.Collector) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	for _, c := range append(measures, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})) {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, live := h.ask()
		answer(w, []replica.Check{{Name: "live", Err: live}})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		ready, _ := h.ask()
		answer(w, ready)
	})
	return mux, nil
}

// warnOfMetrics warns if other machines reach the address of metrics and health.
func warnOfMetrics(a *base.App, addr string) {
	if !auth.Loopback(addr) {
		a.Log.Warn("metrics and health have no authentication: every client that reaches this address can read them", "listen", addr)
	}
}

// serveMetrics serves metrics and health until stop is called. It listens before it returns, so
// that a command can report a wrong address before it starts anything else.
func serveMetrics(a *base.App, addr string, h *health, measures ...prometheus.Collector) (stop func(), err error) {
	if addr == "" {
		return func() {}, nil
	}
	handler, err := newMetricsHandler(h, measures...)
	if err != nil {
		return nil, err
	}
	s, err := listener.New(listener.Config{Addr: addr, Grace: time.Millisecond}) // without a logger, which would get a line for each scrape
	if err != nil {
		return nil, fmt.Errorf("--metrics-addr: %w", err)
	}
	warnOfMetrics(a, addr)
	a.Log.Info("serving metrics and health", "metrics", s.URL()+"/metrics")
	return background(context.Background(), func(ctx context.Context) {
		if err := s.Serve(ctx, handler, func() {}); err != nil {
			a.Log.Error("metrics and health server stopped", "error", err)
		}
	}), nil
}

// answer lists the checks in the format of Kubernetes' own components. The status is 503 if a
// check fails that is not informational, else 200.
func answer(w http.ResponseWriter, checks []replica.Check) {
	status, text := http.StatusOK, strings.Builder{}
	for _, c := range checks {
		switch {
		case c.Err == nil:
			fmt.Fprintf(&text, "[+]%s ok\n", c.Name)
		case c.Informational:
			fmt.Fprintf(&text, "[ ]%s: %v\n", c.Name, c.Err)
		default:
			status = http.StatusServiceUnavailable
			fmt.Fprintf(&text, "[-]%s failed: %v\n", c.Name, c.Err)
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = fmt.Fprint(w, text.String()) // it fails only if the client has disconnected
}

// healthOf returns the checks of a replica that runs until ctx ends.
func healthOf(ctx context.Context, r *replica.Replica) func() ([]replica.Check, error) {
	return func() ([]replica.Check, error) {
		ready := r.Ready()
		if ctx.Err() != nil {
			ready = append(ready, replica.Check{Name: "work", Err: errors.New("shutting down: waiting for running slots")})
		}
		return ready, r.Live()
	}
}
