//go:build long && unix

package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

const downtime = 10 * time.Minute

// The test simulates the downtime: it sets back the watermark and the times from which the jobs' plans are
// in force, because to wait would take minutes. The slots are half a minute away from the time of the test,
// so none of them is about to become late.
func TestCatchUpPoliciesDoWhatTheySayAfterDowntime(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	schedule := fmt.Sprintf(`schedule: "%d * * * * *", overlap: allow`, (time.Now().Second()+30)%60)
	file := s.jobs(`echo "$CRONCE_SLOT_ID" >>touched`,
		"name: newest, "+schedule, // the default policy
		"name: few, "+schedule+", catch_up: {policy: all, max: 3}",
		"name: recent, "+schedule+", catch_up: {policy: all, within: 4m}",
		"name: gone, "+schedule+", catch_up: {policy: none}",
	)
	first := s.worker("w0", file, "--lease", lease.String())
	first.says("node is up")
	eventually(t, "a watermark", func() bool {
		_, err := s.bucket("state").Get(t.Context(), "watermark")
		return err == nil
	})
	term(first)
	s.setBack("state", "watermark", "time", downtime)
	for _, name := range []string{"newest", "few", "recent", "gone"} {
		s.setBack("jobs", name, "since", 2*downtime)
	}
	s.restartServer(term)

	outcomes := s.countOutcomes()
	for _, name := range []string{"w1", "w2", "w3"} {
		s.worker(name, file)
	}
	rows := map[string][]slotRow{}
	eventually(t, "an outcome of every slot", func() bool {
		clear(rows)
		for _, r := range s.slots() {
			if r.State != "succeeded" && r.State != "missed" {
				return false
			}
			rows[r.Job] = append(rows[r.Job], r)
		}
		return len(rows) == 4 && min(len(rows["newest"]), len(rows["few"]), len(rows["recent"]), len(rows["gone"])) >= 10
	})
	s.drained()

	// The newest slot of each job is only half a minute late, so no catch-up policy applies to it.
	for name, wantLate := range map[string]int{"newest": 1, "few": 3, "recent": 3, "gone": 0} {
		checkCaughtUp(t, rows[name], wantLate+1)
	}
	ran := map[string]int{}
	for _, id := range s.touched() {
		ran[id]++
	}
	for _, r := range s.slots() {
		if want := map[string]int{"succeeded": 1}[r.State]; ran[r.ID] != want || outcomes()[r.ID] != 1 {
			t.Errorf("%s is %s, ran %d times and had %d outcomes", r.ID, r.State, ran[r.ID], outcomes()[r.ID])
		}
	}
}

// checkCaughtUp checks that of a job's slots, a minute apart, the newest n succeeded
// and all the others are missed.
func checkCaughtUp(t *testing.T, rows []slotRow, n int) {
	t.Helper()
	for i, r := range rows {
		want := "missed"
		if i >= len(rows)-n {
			want = "succeeded"
		}
		if r.State != want {
			t.Errorf("%s is %s, want %s", r.ID, r.State, want)
		}
		if i > 0 && !r.Slot.Equal(rows[i-1].Slot.Add(time.Minute)) {
			t.Errorf("%s follows %s", r.ID, rows[i-1].ID)
		}
	}
}

// setBack moves an instant in a stored value to the given time before now.
func (s *site) setBack(bucket, key, field string, by time.Duration) {
	s.t.Helper()
	b := s.bucket(bucket)
	entry, err := b.Get(s.t.Context(), key)
	if err != nil {
		s.t.Fatal(err)
	}
	var value map[string]any
	if err := json.Unmarshal(entry.Value(), &value); err != nil {
		s.t.Fatal(err)
	}
	value[field] = time.Now().Add(-by).UTC().Format(time.RFC3339Nano)
	data, err := json.Marshal(value)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := b.Update(s.t.Context(), key, data, entry.Revision()); err != nil {
		s.t.Fatal(err)
	}
}

// countOutcomes counts the events of outcomes of each slot, from now on.
func (s *site) countOutcomes() func() map[string]int {
	s.t.Helper()
	var mu sync.Mutex
	outcomes := map[string]int{}
	_, err := s.nc.Subscribe("cronce.event.>", func(m *nats.Msg) {
		var event struct{ Kind, ID string }
		if err := json.Unmarshal(m.Data, &event); err != nil {
			s.t.Error(err)
		}
		if strings.Contains("succeeded failed skipped missed expired cancelled", event.Kind) {
			mu.Lock()
			outcomes[event.ID]++
			mu.Unlock()
		}
	})
	if err == nil {
		err = s.nc.FlushTimeout(natstest.Patience)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(outcomes)
	}
}
