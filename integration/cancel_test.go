//go:build long && unix

package integration

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
)

// goesOn is an action whose first attempt goes on for ever, with a child and a
// grandchild; all of them mind TERM.
const goesOn = `
echo "start $CRONCE_SLOT_ID $CRONCE_ATTEMPT $CRONCE_FENCE $CRONCE_NODE" >>touched
if [ "$CRONCE_ATTEMPT" = 1 ]; then
	sh -c 'echo $$ >>family; sleep 300 & echo $! >>family; wait' &
	echo $$ >>family
	wait
fi
`

// A cancel ends the command and its children within a second. The slot gets no further attempt, and "slot
// show" says why. A retry is another attempt of the same slot.
func TestCancelEndsARunningCommandWithAllItsChildren(t *testing.T) {
	t.Parallel()
	b := newServedSite(t)
	instant := soon()
	id := slotID("work", instant)
	b.worker("w1", b.jobs(goesOn, "name: work, "+at(instant)))
	eventually(t, "the first attempt and its family", func() bool { return len(b.lines("family")) == 3 })
	cancel := b.start("cancel", "slot", "cancel", id)
	for _, pid := range b.lines("family") {
		n, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the end of process "+pid, func() bool { return !alive(n) })
	}
	if code := cancel.exit(); code != 0 || !strings.Contains(cancel.stdout(), "cancelled by ") {
		t.Errorf("cancel: exit status %d\n%s%s", code, cancel.stdout(), cancel.stderr())
	}
	show := b.start("show", "slot", "show", id, "-o", "json")
	var shown struct {
		State, Error string
		Attempts     []struct{ Error string }
	}
	if code := show.exit(); code != 0 {
		t.Fatalf("show: exit status %d\n%s", code, show.stderr())
	}
	if err := json.Unmarshal([]byte(show.stdout()), &shown); err != nil {
		t.Fatal(err)
	}
	if shown.State != "cancelled" || len(shown.Attempts) != 1 || !strings.Contains(shown.Attempts[0].Error, "cancelled by ") {
		t.Errorf("shown %+v", shown)
	}
	if again := b.start("again", "slot", "retry", id); again.exit() != 0 {
		t.Fatalf("retry: %s", again.stderr())
	}
	b.ends(id, "succeeded")
	if lines := b.touched(); len(lines) != 2 {
		t.Errorf("the action wrote %q", lines)
	}
}

// A cancel is killed, however far it has come. The same command again finishes it.
func TestCancelThatIsKilledIsFinishedByTheSameAgain(t *testing.T) {
	t.Parallel()
	b := newServedSite(t).beginSlot("")
	killed := b.start("killed", "slot", "cancel", b.id)
	killed.kill()
	again := b.start("again", "slot", "cancel", b.id)
	if code := again.exit(); code != 0 || b.record(b.id).State != "cancelled" {
		t.Errorf("exit status %d, state %s\n%s", code, b.record(b.id).State, again.stderr())
	}
	b.familyIsGone()
}
