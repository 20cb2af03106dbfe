//go:build long && unix

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

// kubelet treats processes as a kubelet treats the containers of pods in a rolling update. The
// figures of docs/kubernetes.md are what these tests print (go test -v).
type kubelet struct {
	*site
	grace  time.Duration // --grace
	period time.Duration // terminationGracePeriodSeconds

	// stopping, if it is set, is called when the first pod has begun to stop.
	stopping func()
}

// pod starts a node, and returns when its readiness probe succeeds.
func (k *kubelet) pod(name, file string) *process {
	k.t.Helper()
	p := k.worker(name, file, "--metrics-addr", "127.0.0.1:0", "--grace", k.grace.String())
	eventually(k.t, name+" to be ready", func() bool {
		status, _ := p.ask("/readyz")
		return status == http.StatusOK
	})
	return p
}

// terminate sends TERM, and KILL if the process still runs when the period is over. It reports whether it sent
// KILL.
func (k *kubelet) terminate(p *process) (killed bool) {
	k.t.Helper()
	p.signal(syscall.SIGTERM)
	if f := k.stopping; f != nil {
		k.stopping = nil
		p.says("stopping; running slots may use their grace")
		f()
	}
	select {
	case <-p.ended:
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			k.t.Errorf("%s ends with %d after TERM", p.name, code)
		}
		return false
	case <-time.After(k.period):
		p.kill()
		return true
	}
}

// attempt is a line that the action writes: when an attempt of a slot started or ended, and where.
type attempt struct {
	what, job, node string
	number          int
	at              time.Time
}

// attempts reads what the actions wrote.
func (s *site) attempts(job string) (all []attempt) {
	s.t.Helper()
	for _, line := range s.touched() {
		f := strings.Fields(line)
		number, numberErr := strconv.Atoi(f[2])
		seconds, secondsErr := strconv.ParseFloat(f[4], 64)
		if numberErr != nil || secondsErr != nil {
			s.t.Fatalf("line %q", line)
		}
		if f[1] == job {
			all = append(all, attempt{f[0], f[1], f[3], number, time.UnixMilli(int64(seconds * 1000))})
		}
	}
	return all
}

// rolledScript writes when each attempt starts and ends. The first attempt of the job work goes on
// until the test lets it end. All others take no time.
const rolledScript = `echo "start $CRONCE_JOB $CRONCE_ATTEMPT $CRONCE_NODE $(date +%s.%3N)" >>touched
until [ $CRONCE_JOB != work ] || [ "$CRONCE_ATTEMPT" -gt 1 ] || [ -e goon ]; do sleep 0.1; done
echo "end $CRONCE_JOB $CRONCE_ATTEMPT $CRONCE_NODE $(date +%s.%3N)" >>touched
`

// rolls starts pods a and b and a slot of the job work, then replaces both pods, one after the other,
// and returns the slot's attempts when it has its outcome.
func (k *kubelet) rolls(more string) (_ slotRow, all []attempt, killed int) {
	k.t.Helper()
	_, _ = cronce() // building takes longer than starting
	file := k.jobs(rolledScript,
		`name: work, schedule: none`+more,
		`name: tick, schedule: "* * * * * *", overlap: allow`)
	old := []*process{k.pod("a", file), k.pod("b", file)}
	k.command(0, "job", "trigger", "work", "--key", "rolled")
	eventually(k.t, "the slot to run", func() bool { return len(k.attempts("work")) > 0 })
	if strings.HasPrefix(k.attempts("work")[0].node, "b-") {
		old[0], old[1] = old[1], old[0] // the pod that runs the slot is replaced first
	}
	for i, p := range old {
		k.pod("new"+strconv.Itoa(i), file) // maxSurge: 1, maxUnavailable: 0
		if k.terminate(p) {
			killed++
		}
	}
	return k.outcome(), k.attempts("work"), killed
}

// outcome waits until the slot has its outcome, and returns its row.
func (k *kubelet) outcome() slotRow {
	k.t.Helper()
	k.start("wait", "slot", "wait", "work:@rolled").exit() // the status is 1 if the slot failed
	rows := k.slots("--job", "work")
	if len(rows) != 1 {
		k.t.Fatalf("the job has slots %v", rows)
	}
	return rows[0]
}

// movedFor checks that the slot's second attempt started on another node than the first, and that the
// first one ended for this reason.
func (k *kubelet) movedFor(reason string, all []attempt) {
	k.t.Helper()
	if all[0].node == all[1].node {
		k.t.Errorf("both attempts ran on %s", all[0].node)
	}
	shown := k.command(0, "slot", "show", "work:@rolled", "-o", "json").stdout()
	var slot struct{ Attempts []struct{ Error string } }
	if err := json.Unmarshal([]byte(shown), &slot); err != nil || len(slot.Attempts) != 2 || !strings.Contains(slot.Attempts[0].Error, reason) {
		k.t.Errorf("the slot is %s (%v); want two attempts, and that the first ended because of %q", shown, err, reason)
	}
}

// ticksSucceeded checks the job that runs each second: all of its slots succeeded, on two nodes or more.
func (k *kubelet) ticksSucceeded() {
	k.t.Helper()
	var late time.Duration
	n := 0
	for _, row := range k.slots("--job", "tick") {
		switch {
		case row.State == "pending" || row.State == "running":
		case row.State != "succeeded":
			k.t.Errorf("%s is %s after attempt %d: %s", row.ID, row.State, row.Attempt, row.Error)
		default:
			n++
			late = max(late, row.Started.Sub(row.Due))
		}
	}
	started := map[string]bool{}
	for _, a := range k.attempts("tick") {
		if a.what == "start" {
			started[a.node[:strings.Index(a.node, "-")]] = true
		}
	}
	k.t.Logf("%d slots of the job that runs each second succeeded, at most %v late", n, late.Round(time.Millisecond))
	if n < 3 || len(started) < 2 {
		k.t.Errorf("%d slots ran, on the nodes %v; want three or more, on two nodes or more", n, started)
	}
}

func TestRollingUpdateLetsSlotsFinishWithinTheirGrace(t *testing.T) {
	t.Parallel()
	k := &kubelet{site: newServedSite(t), grace: 25 * time.Second, period: 40 * time.Second}
	k.stopping = func() { k.write("goon", "") }
	r, all, killed := k.rolls("")
	if r.State != "succeeded" || r.Attempt != 1 || len(all) != 2 || killed > 0 {
		t.Errorf("the slot is %s after attempt %d: %v; %d pods were killed", r.State, r.Attempt, all, killed)
	}
	k.ticksSucceeded()
}

// A slot that runs longer than the grace is cancelled, and starts again on another pod.
func TestRollingUpdateMovesSlotsThatOutlastTheirGrace(t *testing.T) {
	t.Parallel()
	k := &kubelet{site: newServedSite(t), grace: 3 * time.Second, period: 18 * time.Second}
	r, all, killed := k.rolls(`, retry: {attempts: 3}`)
	if r.State != "succeeded" || r.Attempt != 2 || len(all) != 3 || killed > 0 {
		t.Fatalf("the slot is %s after attempt %d: %v; %d pods were killed", r.State, r.Attempt, all, killed)
	}
	t.Logf("the second attempt starts %v after the first", all[1].at.Sub(all[0].at).Round(time.Millisecond))
	k.movedFor(job.ErrStopping.Error(), all)
	k.ticksSucceeded()
}

// A slot that may start once has no second attempt: it fails.
func TestRollingUpdateFailsSlotsThatMayStartOnceAndOutlastTheirGrace(t *testing.T) {
	t.Parallel()
	k := &kubelet{site: newServedSite(t), grace: 3 * time.Second, period: 18 * time.Second}
	r, all, killed := k.rolls(`, retry: {attempts: 1}`)
	if r.State != "failed" || r.Attempt != 1 || len(all) != 1 || killed > 0 || !strings.Contains(r.Error, job.ErrStopping.Error()) {
		t.Errorf("the slot is %s after attempt %d: %v; %d pods were killed; error: %s", r.State, r.Attempt, all, killed, r.Error)
	}
	k.ticksSucceeded()
}

// A period that is shorter than the grace is the mistake to avoid: the kubelet kills the pod, and
// the slot waits until the lease has expired.
func TestRollingUpdateThatKillsPodsCostsALease(t *testing.T) {
	t.Parallel()
	k := &kubelet{site: newServedSite(t), grace: 25 * time.Second, period: 2 * time.Second}
	r, all, killed := k.rolls(`, retry: {attempts: 3}`)
	// With the race detector, an idle pod may take longer than the period to end, too.
	if r.State != "succeeded" || r.Attempt != 2 || len(all) != 3 || killed < 1 {
		t.Fatalf("the slot is %s after attempt %d: %v; %d pods were killed", r.State, r.Attempt, all, killed)
	}
	t.Logf("the second attempt starts %v after the first, which ran for 2 s after TERM", all[1].at.Sub(all[0].at).Round(time.Millisecond))
	k.movedFor(" died", all)
	k.ticksSucceeded()
}

// In a pod with a service, the service goes on (preStop) until the sidecar has ended: then the
// slot that runs succeeds. If both end at once, it costs an attempt.
func TestRollingUpdateOfASidecarNeedsAServiceThatEndsLast(t *testing.T) {
	t.Parallel()
	for name, attempts := range map[string]int{"service ends last": 1, "both end at once": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &kubelet{site: newServedSite(t), grace: 25 * time.Second, period: 40 * time.Second}
			pod := func(name string) (sidecar, service *process) {
				addr := natstest.FreeAddress(t)
				service = k.service(addr)
				return k.pod(name, k.write(name+".yaml", fmt.Sprintf(`version: 1
jobs:
  - name: work
    schedule: none
    retry: {attempts: 5, backoff: 100ms}
    action: {http: {url: "http://%s/slow", ready: "http://%s/ready"}}
`, addr, addr))), service
			}
			sidecar, service := pod("old")
			k.command(0, "job", "trigger", "work", "--key", "rolled")
			eventually(t, "the service to work", func() bool { return len(k.lines("slow")) == 1 })
			sidecar.signal(syscall.SIGTERM)
			if attempts == 1 {
				sidecar.exit()
			}
			service.signal(syscall.SIGTERM)
			pod("new") // a kubelet starts this pod first; but the slot could end before the pod is ready
			if r := k.outcome(); r.State != "succeeded" || r.Attempt != attempts {
				t.Errorf("the slot is %s after attempt %d, want %d", r.State, r.Attempt, attempts)
			}
		})
	}
}
