//go:build long && unix

package integration

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestTermFinishesWhatRunsAndLeavesTheRestToOthers(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	file := s.jobs(`
echo "start $CRONCE_SLOT_ID $CRONCE_NODE" >>touched
sleep 1.5
echo "end $CRONCE_SLOT_ID $CRONCE_NODE" >>touched
`, `name: work, schedule: "* * * * * *", overlap: allow`)
	stopped, other := s.worker("w1", file), s.worker("w2", file)
	on := func(what string, w *process) (n int) {
		for _, line := range s.touched() {
			if strings.HasPrefix(line, what) && strings.Contains(line, " "+w.name+"-") {
				n++
			}
		}
		return n
	}
	eventually(t, "a running slot", func() bool {
		if on("start", stopped) == on("end", stopped) {
			stopped, other = other, stopped // an idle worker has nothing to finish
		}
		return on("start", stopped) > on("end", stopped)
	})
	term(stopped)
	if begun, ended := on("start", stopped), on("end", stopped); begun != ended {
		t.Errorf("%s left %d of its slots unfinished", stopped.name, begun-ended)
	}
	if n := s.node(stopped.name); n.State != "stopped" {
		t.Errorf("%s is %s, not stopped", stopped.name, n.State)
	}
	before := on("end", other)
	eventually(t, "the other worker to run the next slots", func() bool { return on("end", other) >= before+3 })
	s.finish([]*process{other}, "work")
	begun, ended := map[string]int{}, map[string]int{}
	for _, line := range s.touched() {
		what := map[string]map[string]int{"start": begun, "end": ended}[strings.Fields(line)[0]]
		what[strings.Fields(line)[1]]++
	}
	for id := range begun {
		if r := s.record(id); begun[id] != 1 || ended[id] != 1 || r.State != "succeeded" || r.Attempt != 1 {
			t.Errorf("%s started %d times, ended %d times, and is %+v", id, begun[id], ended[id], r)
		}
	}
}

func TestTermAgainEndsAtOnce(t *testing.T) {
	t.Parallel()
	b := newServedSite(t).beginSlot("")
	b.owner.signal(syscall.SIGTERM)
	b.owner.says("stopping; ")
	first := time.Now()
	// Within a tenth of a second, a second signal counts as an echo of the first.
	eventually(t, "the time of an echo to pass", func() bool { return time.Since(first) > 150*time.Millisecond })
	if !b.owner.running() {
		t.Fatalf("%s did not wait for its slot: status %d", b.owner.name, b.owner.exit())
	}
	b.owner.signal(syscall.SIGTERM)
	if code := b.owner.exit(); code != 130 {
		t.Errorf("exit status %d, want 130", code)
	}
	b.takenOver()
	b.familyIsGone()
}
