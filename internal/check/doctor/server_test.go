package doctor

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/kv"
)

func TestMaxPayloadBelowWhatSlotsNeedIsAWarning(t *testing.T) {
	t.Parallel()
	for payload, warns := range map[int32]bool{32 << 10: true, space.EnoughPayload - 1: true, space.EnoughPayload: false} {
		js := natstest.Run(t, func(o *server.Options) { o.MaxPayload = payload }).JetStream()
		if _, err := kv.Open(t.Context(), js, kv.Options{}); err != nil {
			t.Fatal(err)
		}
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
