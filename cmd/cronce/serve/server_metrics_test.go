package serve

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/natsconn/embed"
)

// The metrics that only the server has are described on the page of a node's metrics.
func TestThePageDescribesTheServersMetrics(t *testing.T) {
	t.Parallel()
	srv, err := embed.Start(t.Context(), embed.Config{Listen: "127.0.0.1:0", Store: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(serverMetrics{srv})
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	families, err := registry.Gather()
	if err != nil || len(families) == 0 {
		t.Fatal(families, err)
	}
	page := filetest.Read(t, "../../../docs/metrics.md")
	for _, f := range families {
		if !strings.Contains(string(page), "`"+f.GetName()+"`") {
			t.Errorf("docs/metrics.md does not say what %s is", f.GetName())
		}
	}
}
