package job

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
	maxSpan = 100 * 366 * 24 * time.Hour

	// maxClaims bounds the attempts of one slot: an operator may raise them, by
	// MaxAttempts each time. maxSlots bounds what else counts slots or handlers.
	maxClaims = 1_000_000
	maxSlots  = 1<<31 - 1

	// maxWord bounds names that are not jobs, queues or nodes, and nonces, in bytes.
	maxWord = 256

	// maxText bounds, in bytes, what is kept of an error: more than this program ever
	// writes.
	maxText = 4 << 10

	// maxHistory bounds the attempts that a record keeps, the newest.
	maxHistory = 200

	// maxOldBytes is how much is kept of the error of an old attempt, and of an error
	// that quotes what a person wrote.
	maxOldBytes = 200

	// maxQueues and maxHandlers bound the lists of a node, maxExcept that of an
	// announcement.
	maxQueues   = 1000
	maxHandlers = 1_000_000
	maxExcept   = 100
)

// bounds checks the members of one value. It keeps the first error.
type bounds struct {
	what string // the value: "slot record"
	err  error
}

func (b *bounds) refuse(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf("%w %s: %s", errInvalid, b.what, fmt.Sprintf(format, args...))
	}
}

// times puts each time into UTC, and refuses one that RFC 3339 cannot express there.
func (b *bounds) times(member string, times ...*time.Time) {
	for _, t := range times {
		*t = t.UTC()
		if year := t.Year(); year < 0 || year > 9999 {
			b.refuse("%s: year %d: want 0 to 9999", member, year)
		}
	}
}

func (b *bounds) number(member string, n, least, most int) {
	if n < least || n > most {
		b.refuse("%s %d: want %d to %d", member, n, least, most)
	}
}

func (b *bounds) span(member string, d, least, most time.Duration) {
	if d < least || d > most {
		b.refuse("%s %v: want %v to %v", member, d, least, most)
	}
}

// length refuses a list, or a string that is no text, that is too long.
func (b *bounds) length(member string, n, most int) {
	if n > most {
		b.refuse("%s has length %d: at most %d", member, n, most)
	}
}

// words refuses long names and nonces.
func (b *bounds) words(member string, words ...string) {
	for _, w := range words {
		b.length(member, len(w), maxWord)
	}
}

// names refuses what cannot be the name of a job, a queue or a node.
func (b *bounds) names(member string, names ...string) {
	for _, name := range names {
		if err := ValidateName(member, name); err != nil && b.err == nil {
			b.err = fmt.Errorf("%s: %w", b.what, err)
		}
	}
}

// word reports whether w is one of those that this program knows. Another one is
// that of a newer program, to which the value is left; none is refused.
func word[W ~string](b *bounds, member string, w W, known ...W) {
	switch {
	case slices.Contains(known, w) || b.err != nil:
	case w == "":
		b.refuse("%s: it is missing", member)
	default:
		var list []string
		for _, k := range known {
			list = append(list, string(k))
		}
		b.err = fmt.Errorf("%w: %s has %s %q, this program knows %s: upgrade it", errVersion, b.what, member, clip(string(w)), strings.Join(list, ", "))
	}
}

// cutText shortens texts for people.
func cutText(most int, texts ...*string) {
	for _, t := range texts {
		*t = clipTo(*t, most)
	}
}

// last returns the last n elements of s.
func last[T any](s []T, n int) []T { return s[max(0, len(s)-n):] }
