package torture

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/lab/proxy"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/lab/torture/plan"
	"github.com/cronce-io/cronce/lab/torture/promise"
)

func TestHandlersComeAndGoWithTheFileOfJobs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "w1.jobs")
	spec := NodeSpec{Lease: 3 * time.Second, From: time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC), Duration: time.Minute, Work: true, Jobs: file}
	h := newHandlers(spec, nil)
	all := plan.CaseNames(plan.Bounded(spec.Lease, spec.From, spec.From.Add(spec.Duration)))
	for _, want := range [][]string{nil, {"skip", "steady"}, {}, {"steady"}} {
		if want == nil {
			want = all // there is no file yet
		} else if err := os.WriteFile(file, []byte(strings.Join(want, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := h.read(); err != nil {
			t.Fatal(err)
		}
		if got := sorted(h.names()); !slices.Equal(got, sorted(want)) {
			t.Errorf("it has handlers for %q, want %q", got, want)
		}
		for _, name := range all {
			if there := h.handler(name) != nil; there != slices.Contains(want, name) {
				t.Errorf("a handler of %s: %v", name, there)
			}
		}
	}
}

func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }

func TestOnlyUnansweredMessagesOfTheProcessesRunningSlotsAreLost(t *testing.T) {
	t.Parallel()
	w := newWitness("x")
	slots := map[string]job.Slot{}
	for i, name := range []string{"mine", "ended", "answered", "anothers", "waits"} {
		slots[name] = job.NewSlot("a", time.Unix(int64(i), 0))
		w.slots = append(w.slots, promise.SlotWrite{Seq: uint64(i + 1), Message: core.Message{Slot: slots[name]}})
	}
	write := func(name, node string, state job.State) {
		w.ledger = append(w.ledger, promise.LedgerWrite{Slot: slots[name], Record: job.Record{Slot: slots[name], Node: node, State: state}})
	}
	write("mine", "w1-42-7", job.Running)
	write("ended", "w1-42-7", job.Running)
	write("ended", "w1-42-7", job.Succeeded)
	write("answered", "w1-42-7", job.Running)
	write("anothers", "w12-42-7", job.Running)
	w.acks[3] = promise.Ack{Seq: 3}
	if got := w.messagesOf("w1-"); !slices.Equal(got, []uint64{1}) {
		t.Errorf("messages %v would be deleted, want 1 only", got)
	}
}

func TestALifeDoesNotBeginWhileAnotherRuns(t *testing.T) {
	t.Parallel()
	first := &process{name: "w1.1"}
	m := &member{t: &torture{}, proxy: &proxy.Proxy{}, life: 1, now: first}
	if err := m.begin(); err != nil || m.now != first || m.life != 1 {
		t.Errorf("life %d runs, %v; want the first to go on", m.life, err)
	}
}
