package torture

import (
	"time"

	"github.com/cronce-io/cronce/internal/fleet/boot"
)

// slowAnswer is how long a server that has nothing wrong with it may take to answer
// a small question. Longer than that, the machine or its disk is to blame for what
// the fleet does late.
const slowAnswer = 250 * time.Millisecond

// noteFault writes down that a fault hit a process, a stream or the servers, from
// since until now. The check needs both sides: a rule may be about what a fault does,
// or about processes that no fault touched.
func (t *torture) noteFault(f Fault, of string, since time.Duration) {
	t.note(Line{What: lineFault, Kind: f.Kind, Of: of, From: since, Delay: f.Delay})
}

// noteAnswer writes down that the servers took long to answer this process, which no
// fault stands between.
func (t *torture) noteAnswer(sent time.Duration, err error) {
	if err != nil || boot.Now()-sent > slowAnswer {
		t.note(Line{What: linePause, Process: serverProcess, From: sent})
	}
}

func (t *torture) note(l Line) {
	if err := t.notes.add(l); err != nil {
		t.fail(err)
	}
}
