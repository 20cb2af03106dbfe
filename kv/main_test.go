package kv_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// TestMain also checks that no goroutine of a watch or a list is left. nats-server may
// leave goroutines for a moment after its shutdown, so those are ignored.
func TestMain(m *testing.M) {
	natstest.WaitMore(8)
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*Server).startGoRoutine.func1"),
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.init.0.func1"),
	)
}
