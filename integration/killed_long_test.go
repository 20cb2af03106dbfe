//go:build long && unix

package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Eight producers are killed one after the other, at random moments, while a hundred slots are due each
// second. By the broker's timestamps, the slots of the second after a death are stored at most half a second
// late. All others are on time, and each slot is stored once. The test measures, so .ci/race leaves it out.
func TestKilledProducerDelaysOnlyItsNextSlots(t *testing.T) {
	for _, producers := range []int{3, 10} {
		t.Run(fmt.Sprint(producers), func(t *testing.T) {
			s := newForeignSite(t)
			var jobs []string
			for i := range 100 {
				jobs = append(jobs, fmt.Sprintf(`name: tick-%d, schedule: "* * * * * *"`, i))
			}
			f := &fleet{site: s, file: s.jobs("", jobs...)}
			add := func() {
				f.born++
				p := s.worker(fmt.Sprintf("p%d", f.born), f.file, "--no-work")
				p.says("node is up")
				f.members = append(f.members, p)
			}
			for range producers {
				add()
			}
			wait := func(d time.Duration) {
				until := time.Now().Add(d)
				eventually(t, "the next moment", func() bool { return time.Now().After(until) })
			}
			wait(5 * time.Second) // until each knows the others
			since := time.Now()
			var deaths []time.Time
			killed, published := map[string]bool{}, map[string]int{}
			for range 8 {
				wait(2*time.Second + rand.N(time.Second))
				i := rand.IntN(min(len(f.members), 5)) // only the five oldest are active
				f.members[i].kill()
				killed[f.members[i].name] = true
				f.members = slices.Delete(f.members, i, i+1)
				deaths = append(deaths, time.Now())
				add()
			}
			wait(3 * time.Second)
			until := time.Now().Add(-time.Second)
			for _, p := range f.members {
				term(p)
			}
			stored := map[string]bool{}
			late, worst, punctual := 0, time.Duration(0), time.Duration(0)
			for _, m := range s.stored() {
				id := m.Header.Get(core.HeaderSlot)
				if stored[id] {
					t.Errorf("%s is stored twice", id)
				}
				stored[id] = true
				slot, err := job.ParseSlotID(id)
				if err != nil {
					t.Fatal(err)
				}
				if slot.At.Before(since) || slot.At.After(until) {
					continue
				}
				by, _, _ := strings.Cut(m.Header.Get("Cronce-Node"), "-")
				published[by]++
				lateness := m.Time.Sub(slot.At)
				// A slot that fell due just before a death may be late, too: the dead producer had not
				// published it yet.
				mayBe := slices.ContainsFunc(deaths, func(d time.Time) bool {
					after := slot.At.Sub(d)
					return -200*time.Millisecond < after && after <= time.Second+100*time.Millisecond
				})
				switch {
				case lateness < 0:
					t.Errorf("%s is stored %v early", id, -lateness)
				case mayBe && lateness > 100*time.Millisecond:
					late++
					worst = max(worst, lateness)
				case !mayBe:
					punctual = max(punctual, lateness)
				}
			}
			t.Logf("%d producers, %d killed: %d slots, %d of them late by %v at most, the others by %v",
				producers, len(deaths), len(stored), late, worst, punctual)
			idle := 0 // one that has just become active may die before it publishes
			for name := range killed {
				if published[name] == 0 {
					idle++
				}
			}
			if idle > len(killed)/2 {
				t.Errorf("%d of %d killed producers published nothing before, so their deaths show nothing", idle, len(killed))
			}
			if worst > 500*time.Millisecond {
				t.Errorf("a slot of a killed producer is %v late, want at most half a second", worst)
			}
			if punctual > 100*time.Millisecond {
				t.Errorf("a slot that no killed producer had to publish is %v late, want at most a tenth of a second", punctual)
			}
			for at := since.Truncate(time.Second).Add(time.Second); at.Before(until); at = at.Add(time.Second) {
				for i := range 100 {
					if id := job.NewSlot(fmt.Sprint("tick-", i), at).ID(); !stored[id] {
						t.Errorf("%s is not stored", id)
					}
				}
			}
		})
	}
}
