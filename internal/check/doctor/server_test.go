package doctor

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/kv"
)

func TestErrorOfAMonitorDoesNotShowItsLogin(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(nil)
	closed.Close()
	for _, address := range []string{strings.Replace(closed.URL, "://", "://ada:s3cret@", 1), "http://ada:s3%zzcret@127.0.0.1:1"} {
		_, err := AskMonitor(t.Context(), address)
		if err == nil || strings.Contains(err.Error(), "cret") || strings.Contains(err.Error(), "ada") || !strings.Contains(err.Error(), "http://127.0.0.1:") {
			t.Errorf("%s: got %v", address, err)
		}
	}
}

func TestMaxPayloadBelowWhatSlotsNeedIsAWarning(t *testing.T) {
	t.Parallel()
	for payload, warns := range map[int32]bool{32 << 10: true, layout.EnoughPayload - 1: true, layout.EnoughPayload: false} {
		js := natstest.Run(t, func(o *server.Options) { o.MaxPayload = payload }).JetStream()
		kvtest.Open(t, js, kv.Options{})
		_, facts, err := Gather(t.Context(), Sources{JetStream: js, Alive: func() {}})
		if err != nil {
			t.Fatal(err)
		}
		var found []Finding
		for _, f := range Check(facts) {
			if f.Check == "max_payload" {
				found = append(found, f)
			}
		}
		switch {
		case !warns && len(found) > 0:
			t.Errorf("max_payload %d: got %+v, want nothing", payload, found)
		case warns && (len(found) != 1 || found[0].Level != Warning):
			t.Errorf("max_payload %d: got %+v, want one warning", payload, found)
		}
	}
}
