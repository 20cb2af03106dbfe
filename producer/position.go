package producer

import (
	"time"

	"github.com/cronce-io/cronce/internal/core"
)

// position is what a watermark says, without who wrote it: every slot due up to
// time has been published, of the registry as it was at revision, whose newest
// timestamp is registry.
type position struct {
	time     time.Time
	revision uint64
	registry time.Time
}

func positionOf(wm core.Watermark) position {
	return position{wm.Time, wm.Revision, wm.RegistryTime}
}

// knows reports whether a plan that came into force at from, and stands in an
// entry of the given revision, was part of the registry of this position. The
// entry's revision alone does not tell: an edit of anything but the plan makes
// the entry newer and leaves the plan as old as it was.
func (p position) knows(revision uint64, from time.Time) bool {
	return revision <= p.revision || !from.After(p.registry)
}

// ahead reports whether q may replace p as the stored watermark: it goes back in
// nothing and forward in something.
func (q position) ahead(p position) bool {
	if q.time.Before(p.time) || q.revision < p.revision {
		return false
	}
	return q.time.After(p.time) || q.revision > p.revision
}

// behind reports whether q, as it is stored, went back against p in anything,
// which no producer has a watermark do. One that is gone, and so says nothing, did
// not: who runs knows better than to offer a job's whole past again.
func (q position) behind(p position) bool {
	return !q.time.IsZero() && (q.time.Before(p.time) || q.revision < p.revision)
}
