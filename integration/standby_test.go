//go:build unix

package integration

import (
	"fmt"
	"strings"
	"testing"
)

// The main worker has priority 0 and the standby worker 5. The main worker takes all slots while it lives. The standby
// takes over when the main worker has died, and hands back when it returns.
func TestStandbyWorkerTakesOverAndHandsBack(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, s *site) {
		file := s.jobs(`echo "$CRONCE_SLOT_ID $CRONCE_NODE" >>touched`, `name: tick, schedule: "* * * * * *"`)
		main := s.worker("main", file)
		standby := s.worker("standby", file, "--priority", "5")
		// runs waits for n slots in a row on one of the workers.
		runs := func(node string, n int) {
			t.Helper()
			last := func() int {
				row, lines := 0, s.touched()
				for ; row < len(lines) && strings.Contains(lines[len(lines)-1-row], " "+node+"-"); row++ {
				}
				return row
			}
			eventually(t, fmt.Sprintf("%d slots in a row on %s", n, node), func() bool { return last() >= n })
		}
		runs("main", 5)
		if n := s.node("standby"); n.State != "alive" || n.Priority != 5 {
			t.Errorf("node ls shows the standby worker as %+v", n)
		}
		main.kill()
		runs("standby", 3)
		s.worker("main", file)
		runs("main", 5)
		term(standby)
		runs("main", 2)
	})
}
