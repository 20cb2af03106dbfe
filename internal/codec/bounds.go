package codec

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Any login may have written a value on the broker, so every decoder bounds its value. Then no
// count makes the code that uses the value allocate or loop without end, and every time can be
// written as RFC 3339 again. If a member that rules depend on is out of bounds, the whole value is
// invalid. A text for people is cut.
const (
	// MaxSpan bounds durations in settings, and the clock offsets that nodes report.
	MaxSpan = 100 * 366 * 24 * time.Hour

	// MaxClaims bounds the attempts of one slot, to which each retry by an operator may add
	// job.MaxAttempts. MaxSlots bounds other counts of slots and of handlers.
	MaxClaims = 1_000_000
	MaxSlots  = 1<<31 - 1

	// MaxCount bounds counts that are only shown.
	MaxCount = math.MaxInt

	// MaxWord bounds nonces, and names that are not those of jobs, queues or nodes, in bytes.
	MaxWord = 256

	// MaxText bounds errors, in bytes. This program writes shorter ones.
	MaxText = 4 << 10

	// MaxHistory bounds the attempts that a record keeps: the newest ones.
	MaxHistory = 200

	// MaxOldBytes bounds the error of an old attempt, the text of a progress report, and an error
	// that quotes foreign text, in bytes.
	MaxOldBytes = 200

	// MaxQueues bounds the list of a node record, MaxHandlers a list of handlers, and MaxExcept the
	// list of an announcement.
	MaxQueues   = 1000
	MaxHandlers = 1_000_000
	MaxExcept   = 100
)

// DecodeBounded does what Decode does, and then calls bound to check the members of dst.
func DecodeBounded(what string, data []byte, dst any, bound func(*Bounds)) (Extra, error) {
	extra, err := Decode(what, data, dst)
	if err != nil {
		return nil, err
	}
	b := Bounds{What: what}
	bound(&b)
	return extra, b.Err
}

// Bounds checks the members of one value. Err is the first error.
type Bounds struct {
	What string // the kind of value, for errors: "slot record"
	Err  error
}

// Refuse sets the error, unless there is one.
func (b *Bounds) Refuse(format string, args ...any) {
	if b.Err == nil {
		b.Err = fmt.Errorf("%w %s: %s", ErrInvalid, b.What, fmt.Sprintf(format, args...))
	}
}

// Times converts times to UTC, and refuses those that RFC 3339 cannot express.
func (b *Bounds) Times(member string, times ...*time.Time) {
	for _, t := range times {
		*t = t.UTC()
		if year := t.Year(); year < 0 || year > 9999 {
			b.Refuse("%s: year %d: want 0 to 9999", member, year)
		}
	}
}

// Number refuses a number below least or above most.
func (b *Bounds) Number(member string, n, least, most int) {
	if n < least || n > most {
		b.Refuse("%s %d: want %d to %d", member, n, least, most)
	}
}

// Span refuses a duration below least or above most.
func (b *Bounds) Span(member string, d, least, most time.Duration) {
	if d < least || d > most {
		b.Refuse("%s %v: want %v to %v", member, d, least, most)
	}
}

// Length refuses a list or a string with more than most elements.
func (b *Bounds) Length(member string, n, most int) {
	if n > most {
		b.Refuse("%s has length %d: at most %d", member, n, most)
	}
}

// Words refuses names and nonces of more than MaxWord bytes.
func (b *Bounds) Words(member string, words ...string) {
	for _, w := range words {
		b.Length(member, len(w), MaxWord)
	}
}

// Names refuses names that ValidateName refuses.
func (b *Bounds) Names(member string, names ...string) {
	for _, name := range names {
		if err := ValidateName(member, name); err != nil && b.Err == nil {
			b.Err = fmt.Errorf("%s: %w", b.What, err)
		}
	}
}

// Word refuses a word that is not one of the known ones. An unknown word may be that of a newer
// program, so the error is ErrVersion. An empty one is ErrInvalid.
func Word[W ~string](b *Bounds, member string, w W, known ...W) {
	switch {
	case slices.Contains(known, w) || b.Err != nil:
	case w == "":
		b.Refuse("%s: it is missing", member)
	default:
		b.Err = fmt.Errorf("%w: %s has %s %q, this program knows %s: upgrade this program", ErrVersion, b.What, member, Clip(string(w)), strings.Join(Strings(known...), ", "))
	}
}

// Strings converts words to text.
func Strings[W ~string](words ...W) []string {
	return Map(words, func(w W) string { return string(w) })
}

// Alternatives joins words to "a", "a or b", or "a, b or c".
func Alternatives[W ~string](words ...W) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(Strings(words...), "")
	}
	return strings.Join(Strings(words[:last]...), ", ") + " or " + string(words[last])
}

// Map returns what f returns for each element of s.
func Map[T, U any](s []T, f func(T) U) (mapped []U) {
	for _, v := range s {
		mapped = append(mapped, f(v))
	}
	return mapped
}

// CutText cuts texts for people to most bytes.
func CutText(most int, texts ...*string) {
	for _, t := range texts {
		*t = ClipTo(*t, most)
	}
}

// Last returns the last n elements of s, or all of them.
func Last[T any](s []T, n int) []T { return s[max(0, len(s)-n):] }
