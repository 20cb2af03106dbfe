package codec

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// What stands on the broker may have been written by anybody. So each value is
// bounded where it is decoded, by a method bound of its type, and the code that uses
// it can compute with it: no count makes it allocate or loop without end, no time is
// outside of what can be written again. A member that decides something makes the
// whole value unreadable when it is out of bounds. A text for people is cut.
const (
	// maxSpan bounds all other settings, and what a node says about clocks.
	MaxSpan = 100 * 366 * 24 * time.Hour

	// maxClaims bounds the attempts of one slot: an operator may raise them, by
	// MaxAttempts each time. maxSlots bounds what else counts slots or handlers.
	MaxClaims = 1_000_000
	MaxSlots  = 1<<31 - 1

	// maxWord bounds names that are not jobs, queues or nodes, and nonces, in bytes.
	MaxWord = 256

	// maxText bounds, in bytes, what is kept of an error: more than this program ever
	// writes.
	MaxText = 4 << 10

	// maxHistory bounds the attempts that a record keeps, the newest.
	MaxHistory = 200

	// maxOldBytes is how much is kept of the error of an old attempt, and of an error
	// that quotes what a person wrote.
	MaxOldBytes = 200

	// maxQueues and maxHandlers bound the lists of a node, maxExcept that of an
	// announcement.
	MaxQueues   = 1000
	MaxHandlers = 1_000_000
	MaxExcept   = 100
)

// bounds checks the members of one value. It keeps the first error.
type Bounds struct {
	What string // the value: "slot record"
	Err  error
}

func (b *Bounds) Refuse(format string, args ...any) {
	if b.Err == nil {
		b.Err = fmt.Errorf("%w %s: %s", ErrInvalid, b.What, fmt.Sprintf(format, args...))
	}
}

// times puts each time into UTC, and refuses one that RFC 3339 cannot express there.
func (b *Bounds) Times(member string, times ...*time.Time) {
	for _, t := range times {
		*t = t.UTC()
		if year := t.Year(); year < 0 || year > 9999 {
			b.Refuse("%s: year %d: want 0 to 9999", member, year)
		}
	}
}

func (b *Bounds) Number(member string, n, least, most int) {
	if n < least || n > most {
		b.Refuse("%s %d: want %d to %d", member, n, least, most)
	}
}

func (b *Bounds) Span(member string, d, least, most time.Duration) {
	if d < least || d > most {
		b.Refuse("%s %v: want %v to %v", member, d, least, most)
	}
}

// length refuses a list, or a string that is no text, that is too long.
func (b *Bounds) Length(member string, n, most int) {
	if n > most {
		b.Refuse("%s has length %d: at most %d", member, n, most)
	}
}

// words refuses long names and nonces.
func (b *Bounds) Words(member string, words ...string) {
	for _, w := range words {
		b.Length(member, len(w), MaxWord)
	}
}

// names refuses what cannot be the name of a job, a queue or a node.
func (b *Bounds) Names(member string, names ...string) {
	for _, name := range names {
		if err := ValidateName(member, name); err != nil && b.Err == nil {
			b.Err = fmt.Errorf("%s: %w", b.What, err)
		}
	}
}

// word reports whether w is one of those that this program knows. Another one is
// that of a newer program, to which the value is left; none is refused.
func Word[W ~string](b *Bounds, member string, w W, known ...W) {
	switch {
	case slices.Contains(known, w) || b.Err != nil:
	case w == "":
		b.Refuse("%s: it is missing", member)
	default:
		var list []string
		for _, k := range known {
			list = append(list, string(k))
		}
		b.Err = fmt.Errorf("%w: %s has %s %q, this program knows %s: upgrade it", ErrVersion, b.What, member, Clip(string(w)), strings.Join(list, ", "))
	}
}

// cutText shortens texts for people.
func CutText(most int, texts ...*string) {
	for _, t := range texts {
		*t = ClipTo(*t, most)
	}
}

// last returns the last n elements of s.
func Last[T any](s []T, n int) []T { return s[max(0, len(s)-n):] }
