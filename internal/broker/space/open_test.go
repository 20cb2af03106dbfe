package space

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/wire"
)

// A server without room refuses one replica with the same code.
func TestOnlyARefusalOfSeveralReplicasIsExplained(t *testing.T) {
	t.Parallel()
	refused := &jetstream.APIError{ErrorCode: wire.CodeNoPeers, Description: "no suitable peers for placement"}
	for replicas, explained := range map[int]bool{0: false, 1: false, 3: true} {
		if err := new(Space).needsServers(refused, replicas); !errors.Is(err, refused) || (err != error(refused)) != explained {
			t.Errorf("%d replicas: %v", replicas, err)
		}
	}
}
