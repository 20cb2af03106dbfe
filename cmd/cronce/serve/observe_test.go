package serve

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/cmd/cronce/base"
)

func TestMetricsThatOtherMachinesReachAreWarnedOf(t *testing.T) {
	t.Parallel()
	const warning = `level=WARN msg="metrics and health have no authentication: every client that reaches this address can read them" listen=:0`
	for _, tc := range []struct {
		metrics, http string
		want          int
	}{
		{":0", "127.0.0.1:0", 1},
		{":0", ":0", 1}, // one address for both
		{"127.0.0.1:0", ":0", 0},
		{"127.0.0.1:0", "127.0.0.1:0", 0},
	} {
		var log strings.Builder
		a := &base.App{Getenv: os.Getenv, Log: slog.New(slog.NewTextHandler(&log, nil))}
		f := httpFlags{name: "http", addr: tc.http, insecure: tc.http == ":0"}
		_, stop, err := f.serve(a, tc.metrics, &health{})
		if err != nil {
			t.Fatal(err)
		}
		stop()
		if got := strings.Count(log.String(), warning); got != tc.want {
			t.Errorf("metrics on %s and the API on %s: %d warnings, want %d\n%s", tc.metrics, tc.http, got, tc.want, &log)
		}
	}
}
