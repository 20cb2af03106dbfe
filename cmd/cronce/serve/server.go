package serve

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/internal/natsconn/embed"
	"github.com/cronce-io/cronce/internal/web/auth"
)

func NewServerCommand(a *base.App) *cobra.Command {
	var listen, metricsAddr string
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run the embedded NATS server alone",
		Long: `Run the NATS server with JetStream that is built into cronce, alone, until TERM or
Ctrl-C. It syncs every write. It has no authentication: keep it on loopback.

It prints its URL and its store. When it ends, a "cronce run" that joined it on the same
store takes over port and store.

With -o json it prints one line:

  {"url":"nats://127.0.0.1:4222","store":"/var/lib/cronce"}`,
		Example: `  cronce server
  cronce server --listen 127.0.0.1:5222 --store /var/lib/cronce`,
		Args: base.Arguments(cobra.NoArgs),
		RunE: base.Endless(func(cmd *cobra.Command, _ []string) error {
			cfg := embed.Config{Listen: listen, Store: a.Store, Logger: a.Log}
			if err := cfg.Validate(); err != nil {
				return base.Usage(err)
			}
			if err := checkAddr("metrics-addr", metricsAddr, "9464"); err != nil {
				return base.Usage(err)
			}
			if !auth.Loopback(listen) {
				a.Log.Warn("server has no authentication: every client that reaches this address can use it", "listen", listen)
			}
			var h health
			_, stopReporting := supervise(cmd.Context(), a, &h)
			defer stopReporting()
			srv, err := embed.Start(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			h.set(func() ([]replica.Check, error) {
				return []replica.Check{{Name: "JetStream", Err: srv.Ready()}}, srv.Live()
			})
			stopMetrics, err := serveMetrics(a, metricsAddr, &h, serverMetrics{srv})
			if err != nil {
				return errors.Join(err, srv.Close())
			}
			defer stopMetrics()
			row := struct {
				URL   string `json:"url"`
				Store string `json:"store"`
			}{srv.URL(), srv.Store()}
			if err := a.Print(row, "url    %s\nstore  %s\n", row.URL, row.Store); err != nil {
				return err
			}
			<-cmd.Context().Done()
			a.Log.Info("stopping")
			return srv.Close()
		}),
	}
	cmd.Flags().StringVar(&listen, "listen", embed.DefaultListen, "`address` to listen on; port 0 is any free one")
	cmd.Flags().StringVar(&metricsAddr, "metrics-addr", "", metricsAddrHelp)
	return cmd
}

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
