package replica

import (
	"testing"
	"time"

	"github.com/cronce-io/cronce/producer"
)

func TestOnlyALoopWithoutTurnsIsStuck(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		s    Stats
		want bool
	}{
		"no producer runs":         {Stats{Producer: producer.Stats{Turned: now.Add(-time.Hour)}}, false},
		"it has not begun":         {Stats{Produces: true}, false},
		"it turns, without broker": {Stats{Produces: true, Producer: producer.Stats{Turned: now.Add(-time.Second)}}, false},
		"it stands still":          {Stats{Produces: true, Producer: producer.Stats{Turned: now.Add(-stuckAfter - time.Second)}}, true},
	} {
		if err := checkLoop(c.s, now); (err != nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
