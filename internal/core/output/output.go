// Package output decides which part of what a handler writes is kept, and which is sent to the
// clients that follow it. It is pure, like package core.
package output

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cronce-io/cronce/job"
)

// Buffer keeps the beginning and the end of what an attempt writes: Limit bytes in all, half of
// them from each end. Its zero value keeps nothing. It is not safe for concurrent use.
type Buffer struct {
	Limit int

	head, tail []byte // tail holds up to twice tailSize bytes; only the last tailSize count
	written    int64
}

// Write takes all of p.
func (o *Buffer) Write(p []byte) {
	o.written += int64(len(p))
	n := min(len(p), o.headSize()-len(o.head))
	o.head, p = append(o.head, p[:n]...), p[n:]
	size := o.tailSize()
	p = p[max(0, len(p)-size):]
	if len(o.tail)+len(p) > 2*size {
		o.tail = append(o.tail[:0], o.tail[max(0, len(o.tail)-size):]...)
	}
	o.tail = append(o.tail, p...)
}

func (o *Buffer) headSize() int { return o.Limit - o.tailSize() }
func (o *Buffer) tailSize() int { return o.Limit / 2 }

// Written returns how many bytes were written.
func (o *Buffer) Written() int64 { return o.written }

// String returns what is kept, as valid UTF-8. If something was cut, a mark in its place says how
// many bytes. No character is cut in two.
func (o *Buffer) String() string {
	head, tail := o.head, o.tail[max(0, len(o.tail)-o.tailSize()):]
	if o.written <= int64(o.Limit) {
		return Valid(string(head) + string(tail))
	}
	h, t := withoutCutEnd(string(head)), withoutCutStart(string(tail))
	return Valid(h) + outputMark(o.written-int64(len(h)+len(t))) + Valid(t)
}

// Valid returns s with every byte that is not UTF-8 replaced.
func Valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// outputMark stands in a text in place of the bytes that were cut.
func outputMark(bytes int64) string { return fmt.Sprintf("\n... (%d bytes cut) ...\n", bytes) }

var outputMarks = regexp.MustCompile(`\n\.\.\. \(([0-9]{1,18}) bytes cut\) \.\.\.\n`)

// markSize is the largest width of a mark, in bytes of JSON, where a newline takes two.
var markSize = len(outputMark(999_999_999_999_999_999)) + 2

// withoutCutEnd returns s without a character at its end that was cut in two.
func withoutCutEnd(s string) string {
	for n := 1; n <= min(utf8.UTFMax-1, len(s)); n++ {
		if end := s[len(s)-n:]; utf8.RuneStart(end[0]) {
			if !utf8.FullRuneInString(end) {
				return s[:len(s)-n]
			}
			break
		}
	}
	return s
}

// withoutCutStart returns s without the rest of a character at its start.
func withoutCutStart(s string) string {
	n := 0
	for n < min(utf8.UTFMax-1, len(s)) && !utf8.RuneStart(s[n]) {
		n++
	}
	return s[n:]
}

// Shrink returns the beginning and the end of s, in at most limit bytes with the mark between
// them, or only the mark. A text that was cut before keeps one mark, for all that was cut.
func Shrink(s string, limit int) string {
	return shrink(s, limit, func(_ rune, size int) int { return size })
}

// ShrinkBy shrinks s as Shrink does, until its JSON is shorter by over bytes or only the mark is
// left.
func ShrinkBy(s string, over int) string {
	if s == "" || over <= 0 {
		return s
	}
	return shrink(s, WidthOf(s, QuotedWidth)-over, QuotedWidth)
}

// shrink is Shrink with another measure of length: width returns the length of one character, and
// limit bounds the sum.
func shrink(s string, limit int, width func(r rune, size int) int) string {
	if WidthOf(s, width) <= limit {
		return s
	}
	head, tail, cut, marked := parts(s)
	if marked {
		cut -= int64(len(s) - len(head) - len(tail)) // the old mark is not part of the text
	} else {
		head, tail = s, s
	}
	room := max(0, limit-markSize)
	h, left := First(head, room-min(WidthOf(tail, width), room/2), width)
	t := last(tail, room/2+left, width)
	return h + outputMark(cut+int64(len(s)-len(h)-len(t))) + t
}

// parts returns the texts before and after the mark in s, and how many bytes the mark stands for.
// Without a mark, all of s is the head.
func parts(s string) (head, tail string, cut int64, marked bool) {
	at := outputMarks.FindStringSubmatchIndex(s)
	if at == nil {
		return s, "", 0, false
	}
	cut, _ = strconv.ParseInt(s[at[2]:at[3]], 10, 64) // 18 digits fit
	return s[:at[0]], s[at[1]:], cut, true
}

// Rest returns a recorded output without its first known bytes: at most two pieces, one from each
// side of the mark. A record has replacements for bytes that are not UTF-8. They may have
// another length, and then the pieces may lack some bytes, or repeat some from before known.
func Rest(recorded string, known int64) (pieces []Piece) {
	head, tail, cut, _ := parts(recorded)
	from := int64(0)
	for _, text := range []string{head, tail} {
		to := from + int64(len(text))
		if known < to {
			begin := max(from, known)
			pieces = append(pieces, Piece{begin, to, Valid(withoutCutStart(text[begin-from:]))})
		}
		from = to + cut
	}
	return pieces
}

// WidthOf returns the sum of the widths of the characters of s.
func WidthOf(s string, width func(r rune, size int) int) (n int) {
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		n, s = n+width(r, size), s[size:]
	}
	return n
}

// First returns the first characters of s that fit into room, and the room that is left.
func First(s string, room int, width func(r rune, size int) int) (first string, left int) {
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if room -= width(r, size); room < 0 {
			return s[:i], room + width(r, size)
		}
		i += size
	}
	return s, room
}

// last returns the last characters of s that fit into room.
func last(s string, room int, width func(r rune, size int) int) string {
	for i := len(s); i > 0; {
		r, size := utf8.DecodeLastRuneInString(s[:i])
		if room -= width(r, size); room < 0 {
			return s[i:]
		}
		i -= size
	}
	return s
}

const (
	// oldOutputs bounds the output of the earlier attempts of a record. The newest of them
	// keeps at most a half of it, the one before a quarter, and so on, each at least
	// leastOutput. Both are in bytes of JSON.
	oldOutputs  = 64 << 10
	leastOutput = 256
)

// ShrinkAttempts applies the bounds to the outputs of the attempts before the last one. It changes
// its argument.
func ShrinkAttempts(attempts []job.Attempt) {
	share := oldOutputs / 2
	for i := len(attempts) - 2; i >= 0; i-- {
		attempts[i].Output = shrink(attempts[i].Output, max(share, leastOutput), QuotedWidth)
		share /= 2
	}
}

// QuotedWidth returns how many bytes a rune of size bytes takes in a JSON string.
func QuotedWidth(r rune, size int) int {
	switch {
	case r == '"', r == '\\', r == '\n', r == '\r', r == '\t', r == '\b', r == '\f':
		return 2
	case r < ' ', r == utf8.RuneError && size == 1, r == '\u2028', r == '\u2029':
		return 6
	}
	return size
}
