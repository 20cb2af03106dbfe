package model

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain also checks that no client is left running. What nats-server leaves
// behind for a moment after its shutdown is its own.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*Server).startGoRoutine.func1"),
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.init.0.func1"),
	)
}
