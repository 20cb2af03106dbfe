package replica_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

func TestMaxPayloadBelowWhatSlotsNeedIsLoggedAtTheStart(t *testing.T) {
	t.Parallel()
	for payload, warns := range map[int32]bool{layout.EnoughPayload - 1: true, layout.EnoughPayload: false} {
		s := &site{t, natstest.Run(t, func(o *server.Options) { o.MaxPayload = payload }), 2 * time.Second}
		var log bytes.Buffer // read once the replica has ended
		started := make(chan struct{}, 100)
		_, stop, ended := s.replica(func(context.Context, job.Run) error {
			started <- struct{}{}
			return nil
		}, func(c *replica.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		waitFor(s, "a start", started)
		stop()
		if err := waitFor(s, "the end", ended); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "max_payload is low"); got != warns {
			t.Errorf("max_payload %d: logged a warning: %t, want %t:\n%s", payload, got, warns, log.String())
		}
	}
}
