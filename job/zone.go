package job

import "time"

// span is a stretch of instants with one offset: start <= u < end, in seconds
// since 1970. after is the offset from end on.
type span struct {
	start, end    int64
	offset, after int64
}

// spanFrom is the span that begins at start, whether or not the offset changes
// there.
func spanFrom(loc *time.Location, start int64) span {
	s := span{start: start, end: constantUntil(loc, start), offset: offsetAt(loc, start)}
	s.after = s.offset
	// A bound at which only the zone's name changes, or a year of the rule for
	// the far future ends, is none of ours. Three in a row are the most there
	// are; more would only cost time.
	for range 4 {
		if s.end > lastInstant {
			break
		}
		if s.after = offsetAt(loc, s.end); s.after != s.offset {
			break
		}
		s.end = constantUntil(loc, s.end)
	}
	return s
}

func offsetAt(loc *time.Location, u int64) int64 {
	_, offset := time.Unix(u, 0).In(loc).Zone()
	return int64(offset)
}

// constantUntil returns an instant after u before which the offset does not
// change. It is not always the last such instant.
func constantUntil(loc *time.Location, u int64) int64 {
	_, bound := time.Unix(u, 0).In(loc).ZoneBounds()
	if bound.IsZero() {
		return lastInstant + 1
	}
	if end := bound.Unix(); end > u {
		return end
	}
	// On the last day of a leap year that the zone's closing rule covers,
	// ZoneBounds names the beginning of that very day (golang/go#81583). The
	// rule's periods end with the year at the earliest: this day is constant.
	return (floorDiv(u, daySeconds) + 1) * daySeconds
}
