package cron

import "time"

// span is a range of instants, from start to before end, with a constant offset from UTC.
// after is the offset from end on.
type span struct {
	start, end    int64
	offset, after int64
}

// spanFrom returns the span that begins at start. The offset need not change there.
func spanFrom(loc *time.Location, start int64) span {
	s := span{start: start, end: constantUntil(loc, start), offset: offsetAt(loc, start)}
	s.after = s.offset
	// Skip bounds at which the offset stays: only the zone's name changes, or a year of the
	// rule for the far future ends. At most three occur in a row.
	for range 4 {
		if s.end > LastInstant {
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

// constantUntil returns an instant after u up to which the offset is constant. It is not
// always the last such instant.
func constantUntil(loc *time.Location, u int64) int64 {
	_, bound := time.Unix(u, 0).In(loc).ZoneBounds()
	if bound.IsZero() {
		return LastInstant + 1
	}
	if end := bound.Unix(); end > u {
		return end
	}
	// On the last day of some leap years, ZoneBounds returns the beginning of that day
	// (golang/go#81583). The offset does not change before the year ends.
	return (floorDiv(u, daySeconds) + 1) * daySeconds
}
