//go:build unix

package integration

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// staysOnce is an action whose first attempt does not end. It has two children and a grandchild; one child and the
// grandchild ignore TERM. A later attempt first writes which processes of the first one still live, and then succeeds.
const staysOnce = `
alive() { kill -0 "$1" 2>/dev/null && ! grep -q ') Z' "/proc/$1/stat" 2>/dev/null; }
if [ -e family ]; then
	while read -r pid; do alive "$pid" && echo "survivor $pid" >>touched; done <family
fi
echo "start $CRONCE_SLOT_ID $CRONCE_ATTEMPT $CRONCE_FENCE $CRONCE_NODE" >>touched
if [ "$CRONCE_ATTEMPT" = 1 ]; then
	sh -c 'trap "" TERM; echo $$ >>family; sleep 300 & echo $! >>family; wait' &
	echo $$ >>family
	sleep 300 &
	echo $! >>family
	wait
	echo "end 1" >>touched
fi
`

const (
	lease = 3 * time.Second

	// familySize is the number of processes of the first attempt of staysOnce.
	familySize = 4
)

// begun is a slot that runs on one of two workers.
type begun struct {
	*site
	id           string
	owner, other *process
	fence        int
	family       []string
	incarnation  string // the node of owner when the slot began
}

// beginSlot starts two workers on a job that fires once, and waits until all processes of the first attempt run.
// policies is appended to the line of the job.
func (s *site) beginSlot(policies string) begun {
	s.t.Helper()
	instant := soon()
	b := begun{site: s, id: slotID("stay", instant)}
	file := s.jobs(staysOnce, "name: stay, "+at(instant)+policies)
	w1 := s.worker("w1", file, "--lease", lease.String())
	w1.says("node is up") // the first node stores the lease, and the second one adopts it
	w2 := s.worker("w2", file)
	eventually(s.t, "the first attempt and its family", func() bool {
		return len(s.touched()) == 1 && len(s.lines("family")) == familySize
	})
	b.family = s.lines("family")
	_, node, fence := parseStart(s.t, s.touched()[0])
	b.incarnation, b.fence = node, fence
	b.owner, b.other = w1, w2
	if strings.HasPrefix(node, "w2-") {
		b.owner, b.other = w2, w1
	}
	return b
}

func parseStart(t *testing.T, line string) (attempt int, node string, fence int) {
	t.Helper()
	f := strings.Fields(line)
	if len(f) != 5 || f[0] != "start" {
		t.Fatalf("the action wrote %q", line)
	}
	attempt, err1 := strconv.Atoi(f[2])
	fence, err2 := strconv.Atoi(f[3])
	if err1 != nil || err2 != nil {
		t.Fatalf("the action wrote %q", line)
	}
	return attempt, f[4], fence
}

// takenOver waits for the second attempt, and checks that the other node ran it with a larger fence, and that no
// process of the first attempt was left.
func (b begun) takenOver() {
	b.t.Helper()
	eventually(b.t, "a second attempt", func() bool { return len(b.touched()) > 1 })
	b.ends(b.id, "succeeded")
	lines := b.touched()
	if len(lines) != 2 {
		b.t.Fatalf("want two starts and no survivors, got %q", lines)
	}
	attempt, node, fence := parseStart(b.t, lines[1])
	if attempt != 2 || fence <= b.fence || !strings.HasPrefix(node, b.other.name+"-") {
		b.t.Errorf("second attempt %q after %q: want attempt 2 with a larger fence on %s", lines[1], lines[0], b.other.name)
	}
	b.oneOutcome("succeeded", 2, fence)
}

// oneOutcome checks the row of the slot in "slot ls", and waits until its message is acked, so that it cannot start
// again.
func (b begun) oneOutcome(state string, attempt, fence int) {
	b.t.Helper()
	rows := b.slots()
	if len(rows) != 1 {
		b.t.Fatalf("want one slot, got %+v", rows)
	}
	if r := rows[0]; r.ID != b.id || r.State != state || r.Attempt != attempt || r.Fence != uint64(fence) {
		b.t.Errorf("slot ls says %+v; want %s %s at attempt %d and fence %d", r, b.id, state, attempt, fence)
	}
	b.drained()
}

// familyIsGone waits until all processes of the first attempt have ended.
func (b begun) familyIsGone() {
	b.t.Helper()
	for _, pid := range b.family {
		n, err := strconv.Atoi(pid)
		if err != nil {
			b.t.Fatal(err)
		}
		eventually(b.t, "the end of process "+pid, func() bool { return !alive(n) })
	}
}

func TestKilledWorkersSlotIsTakenOver(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, s *site) {
		b := s.beginSlot("")
		b.owner.kill()
		b.takenOver()
		b.familyIsGone()
	})
}

func TestKilledWorkersOnlyAttemptIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	b := newServedSite(t).beginSlot(", retry: {attempts: 1}")
	b.owner.kill()
	b.ends(b.id, "failed")
	b.oneOutcome("failed", 1, b.fence)
	if lines := b.touched(); len(lines) != 1 {
		t.Errorf("want one start, got %q", lines)
	}
	b.familyIsGone()
}

// A suspended worker cannot end its action when its lease expires. The guard does it.
func TestFrozenWorkersActionIsEndedBeforeTheNextAttempt(t *testing.T) {
	t.Parallel()
	b := newServedSite(t).beginSlot("")
	refused := make(chan *nats.Msg, 1)
	if _, err := b.nc.ChanSubscribe("cronce.event.refused.stay", refused); err != nil {
		t.Fatal(err)
	}
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	b.owner.signal(syscall.SIGSTOP)
	b.takenOver()
	outcome := b.record(b.id)

	b.owner.signal(syscall.SIGCONT)
	select {
	case m := <-refused:
		if !strings.Contains(string(m.Data), b.id) {
			t.Errorf("refused: %s", m.Data)
		}
	case <-time.After(natstest.Patience):
		t.Error("the completion of the worker that woke up was not refused")
	}
	eventually(t, "the worker to come back under a new name", func() bool {
		n := b.node(b.owner.name)
		return n.State == "alive" && n.Node != b.incarnation
	})
	for _, n := range b.nodes() {
		if n.Node == b.incarnation && n.State != "fenced" {
			t.Errorf("the old incarnation %s is %s, not fenced", n.Node, n.State)
		}
	}
	if now := b.record(b.id); now != outcome {
		t.Errorf("the outcome changed from %+v to %+v", outcome, now)
	}
	if lines := b.touched(); len(lines) != 2 {
		t.Errorf("want two starts and nothing else, got %q", lines)
	}
}
