package verify

import (
	"math"
	"math/bits"
	"time"

	"github.com/cronce-io/cronce/job"
)

// Lateness says how long after their due time handlers started.
type Lateness struct {
	// Slots is how many slots were started.
	Slots int

	// P50 and P99 may be up to 1/16 too large. Max is exact.
	P50, P99, Max time.Duration

	// Buckets count the slots up to each bound, and above the one before.
	Buckets []Bucket
}

// Bucket is one bar of the histogram. The last one has no bound: Up is 0.
type Bucket struct {
	Up    time.Duration
	Slots int
}

var bounds = [...]time.Duration{
	10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, time.Second,
	5 * time.Second, time.Minute, 10 * time.Minute, time.Hour,
}

// histogram counts durations in microseconds. Between a value and its double there are 16 cells.
type histogram struct {
	slots   int
	max     time.Duration
	cells   [64 * 16]int
	buckets [len(bounds) + 1]int
}

func (h *histogram) add(d time.Duration) {
	d = max(d, 0) // clocks are not exact, so a start may seem early
	h.slots++
	h.max = max(h.max, d)
	h.cells[cell(uint64(d.Microseconds()))]++
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	h.buckets[i]++
}

// cell returns the index of v: v itself below 32, otherwise its five leading bits and how often
// v was halved to get them.
func cell(v uint64) int {
	shift := max(bits.Len64(v)-5, 0)
	return shift*16 + int(v>>shift)
}

// top is the largest value of a cell.
func top(cell int) uint64 {
	if cell < 32 {
		return uint64(cell)
	}
	shift := cell/16 - 1
	return uint64(cell%16+17)<<shift - 1
}

func (h *histogram) quantile(part float64) time.Duration {
	rank := int(math.Ceil(part*float64(h.slots))) - 1
	for i, n := range h.cells {
		if rank -= n; rank < 0 {
			return min(time.Duration(top(i))*time.Microsecond, h.max)
		}
	}
	return h.max
}

func (h *histogram) lateness() Lateness {
	l := Lateness{Slots: h.slots, Max: h.max}
	if h.slots == 0 {
		return l
	}
	l.P50, l.P99 = h.quantile(0.5), h.quantile(0.99)
	for i, n := range h.buckets {
		b := Bucket{Slots: n}
		if i < len(bounds) {
			b.Up = bounds[i]
		}
		l.Buckets = append(l.Buckets, b)
	}
	return l
}

// serversApart bounds how far the clocks of a cluster's servers may be apart. The servers
// stamp messages and records.
const serversApart = 10 * time.Millisecond

// earlyBy returns by how much the slot of a record was started before it was due. The broker
// stored the record at written. Zero: the slot was not early, or that is not known.
func (l *timeline) earlyBy(r job.Record, written time.Time) time.Duration {
	due := r.Due
	if l.entry == nil || l.chain != nil || due.IsZero() {
		due = r.Slot.At // the due time of a slot that follows others is when the last of them succeeded
	}
	switch {
	case r.Slot.Token != "" || len(r.Attempts) == 0 || r.Attempts[0].Number != 1:
		return 0
	case !r.Published.IsZero() && !r.Published.Before(due):
		return 0
	}
	if by := due.Sub(startedBy(r, written)); by > serversApart {
		return by
	}
	return 0
}

// startedBy returns an instant by which the first attempt had been started: the start that its
// worker recorded, or an earlier instant that follows from the broker's timestamp.
func startedBy(r job.Record, written time.Time) time.Time {
	first := r.Attempts[0]
	if written.IsZero() {
		return first.Started
	}
	if ran := first.Finished.Sub(first.Started); len(r.Attempts) == 1 && ran > 0 {
		written = written.Add(-ran) // the record was stored when the attempt had ended
	}
	if written.Before(first.Started) {
		return written
	}
	return first.Started
}
