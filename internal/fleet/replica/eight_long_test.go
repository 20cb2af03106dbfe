//go:build long

package replica_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

// Eight producers publish each slot once. When one of them loses its connection, the others publish its
// share at once.
func TestEightProducersPublishOneCopyAndCoverForOneThatIsCutOff(t *testing.T) {
	const jobs, seconds = 50, 6
	s := newSite(t)
	s.define(jobs)
	next := s.published()
	var all []*member
	for i := range 8 {
		all = append(all, newMember(t, s.srv, fmt.Sprint("n", i), standbyDelay))
	}
	natstest.Eventually(t, "eight producers to agree", func() bool {
		return slices.IndexFunc(all, (*member).First) == 0 && all[1].Stats().StoodBy > 0 && all[4].Stats().StoodBy > 0
	})
	settled := time.Now().Truncate(time.Second).Add(2 * time.Second)
	copies, shares := map[string]int{}, map[string]int{}
	at := func(m *nats.Msg) time.Time {
		slot, err := job.ParseSlotID(m.Header.Get(core.HeaderSlot))
		if err != nil {
			t.Fatal(err)
		}
		return slot.At
	}
	for m := next(); at(m).Before(settled.Add(seconds * time.Second)); m = next() {
		if !at(m).Before(settled) {
			copies[m.Header.Get(core.HeaderSlot)]++
			shares[m.Header.Get("Cronce-Node")]++
		}
	}
	sum := 0
	for _, n := range copies {
		sum += n
	}
	t.Logf("%d publications of %d slots, shares %v", sum, len(copies), shares)
	if len(copies) < jobs*(seconds-1) || sum > len(copies)*102/100 || len(shares) != 5 {
		t.Errorf("%d publications of %d slots by %d producers", sum, len(copies), len(shares))
	}

	all[1].nc.Close()
	cut := time.Now()
	_ = all[1].stop() // its watch fails with the connection
	late := map[string]time.Duration{}
	seen := map[string]bool{}
	for m := next(); at(m).Before(cut.Add(4 * time.Second)); m = next() {
		if id := m.Header.Get(core.HeaderSlot); !seen[id] {
			seen[id] = true
			late[id] = time.Since(at(m))
		}
	}
	for id, d := range late {
		if d > 2*standbyDelay {
			t.Errorf("%s came %v late", id, d)
		}
	}
	for i := range jobs {
		name := fmt.Sprint("job", i)
		for at := cut.Truncate(time.Second).Add(time.Second); at.Before(cut.Add(3 * time.Second)); at = at.Add(time.Second) {
			if id := job.NewSlot(name, at).ID(); !seen[id] {
				t.Errorf("%s is missing", id)
			}
		}
	}
}
