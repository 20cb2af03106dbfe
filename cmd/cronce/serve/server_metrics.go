package serve

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/internal/natsconn/embed"
)

// serverMetrics measures an embedded server.
type serverMetrics struct{ srv *embed.Server }

var (
	serverConnections = prometheus.NewDesc("cronce_server_connections", "Clients of the embedded server.", nil, nil)
	serverSlow        = prometheus.NewDesc("cronce_server_slow_consumers_total", "Clients that the embedded server disconnected because they read too slowly.", nil, nil)
	serverMessages    = prometheus.NewDesc("cronce_server_messages", "Messages that the embedded server's streams hold.", nil, nil)
	serverBytes       = prometheus.NewDesc("cronce_server_store_bytes", "Bytes that the embedded server's streams hold.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m serverMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{serverConnections, serverSlow, serverMessages, serverBytes} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. A server that is shutting down has no metrics.
func (m serverMetrics) Collect(ch chan<- prometheus.Metric) {
	s, err := m.srv.Status()
	if err != nil {
		return
	}
	ch <- prometheus.MustNewConstMetric(serverConnections, prometheus.GaugeValue, float64(s.Connections))
	ch <- prometheus.MustNewConstMetric(serverSlow, prometheus.CounterValue, float64(s.SlowConsumers))
	ch <- prometheus.MustNewConstMetric(serverMessages, prometheus.GaugeValue, float64(s.Messages))
	ch <- prometheus.MustNewConstMetric(serverBytes, prometheus.GaugeValue, float64(s.Bytes))
}

// serverHealth returns the checks of an embedded server.
func serverHealth(srv *embed.Server) func() ([]replica.Check, error) {
	return func() ([]replica.Check, error) {
		return []replica.Check{{Name: "JetStream", Err: srv.Ready()}}, srv.Live()
	}
}
