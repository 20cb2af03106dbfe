//go:build unix

package integration

import (
	"slices"
	"strings"
	"testing"
)

// longRun writes a line when it starts, and one when it ends or is stopped. It takes 1.5 s, which is longer than
// the interval of the job.
const longRun = `echo "start $CRONCE_SLOT_ID" >>touched
trap 'echo "stop $CRONCE_SLOT_ID" >>touched; exit 1' TERM
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do sleep 0.1; done
echo "end $CRONCE_SLOT_ID" >>touched`

// oneAtATime checks that no slot of the job started while another one ran. An attempt that was killed wrote no
// end; the next line is then the start of the next attempt of its slot.
func (s *site) oneAtATime(job string) {
	s.t.Helper()
	running := ""
	for _, line := range s.touched() {
		f := strings.Fields(line)
		if len(f) < 2 || !strings.HasPrefix(f[1], job+":") {
			continue
		}
		if f[0] == "start" && running != "" && running != f[1] {
			s.t.Errorf("%s started while %s ran:\n%s", f[1], running, strings.Join(s.touched(), "\n"))
			return
		}
		running = ""
		if f[0] == "start" {
			running = f[1]
		}
	}
}

// byState returns the slots of the job by their states.
func (s *site) byState(job string) map[string][]slotRow {
	all := map[string][]slotRow{}
	for _, row := range s.slots("--job", job) {
		all[row.State] = append(all[row.State], row)
	}
	return all
}

// Three workers share a job that is due each second and takes 1.5 s. Each policy treats its slots in another way.
func TestRunLongerThanItsIntervalNeverOverlaps(t *testing.T) {
	t.Parallel()
	for policy, check := range map[string]func(*testing.T, map[string][]slotRow){
		"skip": func(t *testing.T, by map[string][]slotRow) {
			for _, row := range by["skipped"] {
				if !strings.Contains(row.Error, "slot tick:") || strings.Contains(row.Error, row.ID) {
					t.Errorf("the error of %s, which was skipped, does not name the slot that ran: %q", row.ID, row.Error)
				}
			}
			if len(by["skipped"]) < 2 || len(by["succeeded"]) < 2 {
				t.Errorf("%d skipped, %d succeeded", len(by["skipped"]), len(by["succeeded"]))
			}
		},
		"queue": func(t *testing.T, by map[string][]slotRow) {
			byStart := slices.Clone(by["succeeded"])
			slices.SortFunc(byStart, func(a, b slotRow) int { return a.Started.Compare(b.Started) })
			if !slices.EqualFunc(byStart, by["succeeded"], func(a, b slotRow) bool { return a.ID == b.ID }) {
				t.Errorf("the slots did not run in their order: %+v", byStart)
			}
			if len(by["skipped"]) > 0 || len(by["succeeded"]) < 4 {
				t.Errorf("%d skipped, %d succeeded", len(by["skipped"]), len(by["succeeded"]))
			}
		},
		"latest": func(t *testing.T, by map[string][]slotRow) {
			if len(by["skipped"]) < 1 || len(by["succeeded"]) < 3 {
				t.Errorf("%d skipped, %d succeeded", len(by["skipped"]), len(by["succeeded"]))
			}
		},
		"replace": func(t *testing.T, by map[string][]slotRow) {
			if len(by["cancelled"]) < 3 {
				t.Errorf("%d cancelled", len(by["cancelled"]))
			}
			for _, row := range by["cancelled"] {
				if !strings.Contains(row.Error, "replaced by tick:") {
					t.Errorf("%s was cancelled for %q", row.ID, row.Error)
				}
			}
		},
	} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			s := newServedSite(t)
			file := s.jobs(longRun, "name: tick, schedule: '* * * * * *', overlap: "+policy)
			for _, name := range []string{"w1", "w2", "w3"} {
				s.worker(name, file, "--lease", lease.String())
			}
			eventually(t, "the first run", func() bool { return len(s.touched()) > 0 })
			eventually(t, "nine slots, and some that ran", func() bool {
				by := s.byState("tick")
				return len(by["succeeded"])+len(by["skipped"])+len(by["cancelled"]) >= 9 && (policy == "replace" || len(by["succeeded"]) >= 4)
			})
			check(t, s.byState("tick"))
			s.oneAtATime("tick")
		})
	}
}

// The worker of a slot dies. The slot keeps its place in the lock until another worker has run it again. Then the
// next slot runs, without a reset of the lock by hand.
func TestLockOfACrashedRunFreesItself(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	// mkdir comes before the line for which the test kills the worker, so that only one attempt hangs.
	file := s.jobs(`if [ "$CRONCE_ATTEMPT" = 1 ] && mkdir died; then hang=60; fi
echo "start $CRONCE_SLOT_ID" >>touched
sleep ${hang:-0}
echo "end $CRONCE_SLOT_ID" >>touched`, "name: tick, schedule: '*/2 * * * * *', overlap: skip")
	first := s.worker("w1", file, "--lease", lease.String())
	eventually(t, "the first run", func() bool { return len(s.touched()) > 0 })
	s.worker("w2", file, "--lease", lease.String())
	first.kill()
	id := strings.TrimPrefix(s.touched()[0], "start ")
	if r := s.ends(id, "succeeded"); r.Attempt != 2 {
		t.Errorf("%s succeeded at attempt %d, want 2", id, r.Attempt)
	}
	eventually(t, "the slots after it", func() bool { return len(s.byState("tick")["succeeded"]) >= 4 })
	for _, row := range s.byState("tick")["skipped"] {
		if !strings.Contains(row.Error, id) {
			t.Errorf("%s was skipped for %q, want for %s", row.ID, row.Error, id)
		}
	}
	s.oneAtATime("tick")
}
