package intake_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

func TestMain(m *testing.M) {
	natstest.WaitMore(8)
	goleak.VerifyTestMain(m)
}
