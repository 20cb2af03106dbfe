//go:build long && unix

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Claims count the attempts. So a slot whose handler kills its worker ends too, and its record has an
// attempt for each worker that it killed.
func TestSlotThatKillsItsWorkerEveryTimeEndsFailed(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	instant := soon().UTC()
	// The worker's process ID is the second part of the node's name.
	file := s.jobs(`echo "$CRONCE_ATTEMPT $CRONCE_NODE" >>touched
kill -9 $(echo "$CRONCE_NODE" | cut -d- -f2)
sleep 60`, fmt.Sprintf("name: deadly, schedule: '@at %s', retry: {attempts: 3, backoff: 100ms}", instant.Format(time.RFC3339)))
	for i := range 4 {
		s.worker(fmt.Sprintf("w%d", i), file, "--lease", lease.String())
	}
	id := slotID("deadly", instant)
	s.ends(id, "failed")
	rows := s.slots("--job", "deadly")
	if len(rows) != 1 || rows[0].Attempt != 3 || !strings.Contains(rows[0].Error, "died") || !strings.Contains(rows[0].Error, "all 3 attempts are spent") {
		t.Errorf("slot ls shows %+v", rows)
	}
	lines := s.touched()
	if len(lines) != 3 {
		t.Fatalf("it was started %d times, want 3: %q", len(lines), lines)
	}
	show := s.start("show", "slot", "show", id)
	if code := show.exit(); code != 0 {
		t.Fatalf("slot show: exit status %d", code)
	}
	for _, line := range lines {
		_, node, _ := strings.Cut(line, " ")
		if !strings.Contains(show.stdout(), node) {
			t.Errorf("slot show does not name %s, which it killed:\n%s", node, show.stdout())
		}
	}
}
