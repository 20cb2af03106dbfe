package producer

import (
	"time"

	"github.com/cronce-io/cronce/internal/core"
)

// position is what a watermark says: every slot due up to time has been published, of the
// registry as of revision, whose newest timestamp is registry.
type position struct {
	time     time.Time
	revision uint64
	registry time.Time
}

func positionOf(wm core.Watermark) position {
	return position{wm.Time, wm.Revision, wm.RegistryTime}
}

// knows reports whether the registry of this position had a plan that came into force at
// from and stands in an entry of the given revision. The entry's revision alone does not
// tell: an edit of the payload raises the revision, and the plan stays as old as it was.
func (p position) knows(revision uint64, from time.Time) bool {
	return revision <= p.revision || !from.After(p.registry)
}

// ahead reports whether q may replace p as the stored watermark: nothing in it goes back,
// and something goes forward.
func (q position) ahead(p position) bool {
	if q.time.Before(p.time) || q.revision < p.revision {
		return false
	}
	return q.time.After(p.time) || q.revision > p.revision
}

// behind reports whether something in the stored watermark q went back against p. Only an
// operator or a restored bucket does that. A deleted watermark did not go back: a running
// producer knows what was published, and must not publish a job's whole past again.
func (q position) behind(p position) bool {
	return !q.time.IsZero() && (q.time.Before(p.time) || q.revision < p.revision)
}
