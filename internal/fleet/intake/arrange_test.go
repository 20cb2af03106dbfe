package intake

import (
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// Before a consumer is removed, the definition is read at the registry's leader. A producer that
// lags asks for no such removal in the first place.
func TestArrangeKeepsTheConsumerOfAPlanThatIsNotKnownYet(t *testing.T) {
	t.Parallel()
	on := job.On{Stream: "A", Subject: "x"}
	known := plans.PastPlan{From: time.Unix(1000, 0), Plan: job.Plan{On: on}}
	consumer := func(from time.Time) core.OnConsumer { return core.OnConsumer{Stream: "A", On: on, From: from} }
	newer := consumer(known.From.Add(time.Minute))
	a := arrange([]plans.PastPlan{known}, []core.OnConsumer{consumer(known.From), newer}, nil, time.Time{})
	if len(a.remove) > 0 {
		t.Errorf("removes %+v", a.remove)
	}
	if len(a.take) != 1 || !a.isSpent(a.take[0]) {
		t.Errorf("takes %+v: want the known plan's consumer, which can be removed when it is drained", a.take)
	}
}
