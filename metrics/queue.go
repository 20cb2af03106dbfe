package metrics

import (
	"time"

	"github.com/cronce-io/cronce"
)

// backlog is the work of a queue, as seen at the time now.
type backlog struct {
	cronce.Backlog
	now time.Time
}

// age returns how long the oldest slot has been waiting, if that is known.
func (b backlog) age() (seconds float64, known bool) {
	if b.Waiting == 0 {
		return 0, true
	}
	return max(b.now.Sub(b.Oldest), 0).Seconds(), !b.Oldest.IsZero()
}

// queues returns a value for each queue whose value is known.
func queues(value func(backlog) (float64, bool)) func(cronce.Stats, func(float64, ...string)) {
	return func(s cronce.Stats, set func(float64, ...string)) {
		for name, b := range s.Queues {
			if v, known := value(backlog{b, s.Now}); known {
				set(v, name)
			}
		}
	}
}
