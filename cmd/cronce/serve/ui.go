package serve

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/internal/natsconn/connect"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

func NewUICommand(a *base.App) *cobra.Command {
	f := httpFlags{name: "listen"}
	var metricsAddr string
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve the dashboard and the HTTP API alone, beside any fleet",
		Long: `Ui serves the dashboard and the HTTP API for a fleet until TERM or Ctrl-C. It is not a
node: it runs nothing and publishes no due slots. Start as many as you like: they store
nothing. It waits until its NATS server answers, and until a node or "cronce setup" has
created the namespace; its pages say so.

` + httpAuthHelp + `

With the login of a viewer (see cronce auth) the server is read-only.

/metrics, /healthz and /readyz at --metrics-addr need no login, even if that is the address
of --listen too, so that Prometheus and Kubernetes can ask them.

With -o json it prints one line: {"url":"http://127.0.0.1:8080"}`,
		Example: `  cronce ui
  cronce ui --listen :8443 --http-cert cert.pem --http-key key.pem --http-token-file tokens`,
		Args: base.Arguments(cobra.NoArgs),
		RunE: base.Endless(func(cmd *cobra.Command, _ []string) error {
			if err := checkAddr("metrics-addr", metricsAddr, "9464"); err != nil {
				return base.Usage(err)
			}
			return runUI(cmd.Context(), a, f, metricsAddr)
		}),
	}
	cmd.Flags().StringVar(&f.addr, "listen", "127.0.0.1:8080", "`address` to listen on; port 0 is any free one")
	cmd.Flags().StringVar(&metricsAddr, "metrics-addr", "", f.metricsAddrHelp())
	f.add(cmd.Flags())
	return cmd
}

func runUI(ctx context.Context, a *base.App, f httpFlags, metricsAddr string) error {
	var h health
	s, stopServing, err := f.serve(a, metricsAddr, &h)
	if err != nil {
		return err
	}
	defer stopServing()
	_, stopReporting := supervise(ctx, a, &h)
	defer stopReporting()
	nc, err := waitForServer(ctx, a, &h)
	if err != nil {
		return err
	}
	defer nc.Close()
	defer s.stop() // before the connection is closed
	js, err := nc.JetStream()
	if err != nil {
		return err
	}
	store, err := waitForNamespace(ctx, a, nc, js, &h)
	if err != nil {
		return err
	}
	s.open(client.Attach(attach.Of(nc.Conn, store, attach.Options{Operator: a.Operator(), Now: a.Now, Logger: a.Log})))
	h.set(func() ([]replica.Check, error) {
		check := replica.Check{Name: "broker"}
		if !nc.IsConnected() {
			check.Err = errors.New("not connected to NATS")
		}
		return []replica.Check{check}, nil
	})
	row := struct {
		URL string `json:"url"`
	}{strings.TrimSuffix(s.server.URL(), "/")}
	if err := a.Print(row, "url  %s\n", row.URL); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// waitForServer connects to NATS. The dashboard may start before the server. Until the server
// answers, the pages and /readyz say that it is missing.
func waitForServer(ctx context.Context, a *base.App, h *health) (*connect.Conn, error) {
	target, err := a.Target("ui")
	if err != nil {
		return nil, err
	}
	missing := replica.Check{Name: "broker", Err: fmt.Errorf("waiting for the NATS server %s", target)}
	h.set(func() ([]replica.Check, error) { return []replica.Check{missing}, nil })
	nc, err := target.Await(ctx)
	if err != nil {
		return nil, base.ConnectError(err, target)
	}
	return nc, nil
}

// namespacePause is the pause before waitForNamespace tries again.
const namespacePause = time.Second

// waitForNamespace opens the namespace. If the namespace does not exist, waitForNamespace waits until
// a node or "cronce setup" has created it, because on a new machine everything may start at once. It
// also keeps waiting if the connection is lost meanwhile.
func waitForNamespace(ctx context.Context, a *base.App, nc *connect.Conn, js jetstream.JetStream, h *health) (*kv.Store, error) {
	for logged := false; ; logged = true {
		opening, cancel := context.WithTimeout(ctx, base.ReadPatience)
		store, err := kv.Open(opening, js, kv.Options{Namespace: a.Namespace, ReadOnly: true, Logger: a.Log})
		cancel()
		if !errors.Is(err, job.ErrNotFound) && (err == nil || nc.IsConnected()) {
			return store, err
		}
		if !logged {
			a.Log.Warn("waiting for the namespace", "error", err)
			h.set(func() ([]replica.Check, error) { return []replica.Check{{Name: "namespace", Err: err}}, nil })
		}
		if !wire.Wait(ctx, namespacePause) {
			return nil, context.Cause(ctx)
		}
	}
}
