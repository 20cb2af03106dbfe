package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cronce-io/cronce/internal/text/plain"
)

const (
	// MaxSize is the largest file that is read, in bytes.
	MaxSize = 4 << 20

	// MaxErrors bounds the errors that are reported. A file that is no job file, or that repeats
	// a mistake by aliases, may have thousands.
	MaxErrors = 100

	// maxExcerpt bounds the part of a line that an error shows, in characters.
	maxExcerpt = 100
)

// Source is the text of a file. It collects the errors.
type Source struct {
	name  string
	Text  string
	Lines []string
	errs  Errors
	more  bool // there were more than MaxErrors errors

	// hidden has, by line, the first column that excerpts mask.
	hidden map[int]int
}

// Position is a place in a file. Both count from 1; zero: the whole file.
type Position struct{ Line, Column int }

// NewSource returns the text of a file. If data is too large, empty or not text, Err returns an error.
func NewSource(name string, data []byte) *Source {
	// YAML reads both line ends alike, but its parser counts CRLF twice in quoted text.
	text, err := plain.Text(data)
	s := &Source{name: name, Text: text, Lines: strings.Split(text, "\n")}
	switch {
	case err != nil:
		s.Fail(Position{}, "%v", err)
		return s
	case len(data) > MaxSize:
		s.Fail(Position{}, "the file is larger than %d MiB: split it", MaxSize>>20)
		return s
	case strings.TrimSpace(text) == "":
		s.Fail(Position{}, "the file is empty: want \"version: 1\" and \"jobs:\"")
		return s
	}
	s.checkText()
	return s
}

// checkText reports the first byte that is not UTF-8, or the first control character that YAML does
// not allow. They would be shown, logged and stored as something else.
func (s *Source) checkText() {
	at := Position{1, 0}
	for i, r := range s.Text {
		at.Column++
		switch {
		case r == '\n':
			at = Position{at.Line + 1, 0}
		case r == utf8.RuneError && !strings.HasPrefix(s.Text[i:], "\ufffd"):
			s.Fail(at, "byte 0x%02x is not UTF-8: save the file as UTF-8", s.Text[i])
			return
		case r != '\t' && unicode.IsControl(r):
			s.Fail(at, "control character U+%04X: want plain text", r)
			return
		}
	}
}

// Fail adds an error.
func (s *Source) Fail(at Position, format string, args ...any) {
	if len(s.errs) == MaxErrors {
		s.more = true
		return
	}
	// A message has one line, although names and anchors may contain anything.
	s.errs = append(s.errs, &Error{File: s.name, Line: at.Line, Column: at.Column, Message: printable(fmt.Sprintf(format, args...))})
}

// Number returns the node of a number that is spelled as JSON spells numbers. Many programs that read
// JSON refuse a number that does not fit into a float64, so such a number is a mistake.
func (s *Source) Number(at Position, raw string) *Node {
	if _, err := strconv.ParseFloat(raw, 64); err != nil {
		s.Fail(at, "number %s is out of range: put it in quotes", Clip(raw))
		return &Node{Kind: Broken, At: at}
	}
	return &Node{Kind: Number, At: at, Scalar: raw}
}

// hide masks the rest of a line in excerpts, from a position at which a value begins that may be
// secret.
func (s *Source) hide(at Position) {
	if s.hidden == nil {
		s.hidden = map[int]int{}
	}
	if column, known := s.hidden[at.Line]; !known || at.Column < column {
		s.hidden[at.Line] = at.Column
	}
}

// excerpt returns the line, or the part of a long line around the column, with safe characters for
// a terminal. It also returns the offset of the column in it.
func (s *Source) excerpt(at Position) (string, int) {
	line := ""
	if at.Line <= len(s.Lines) {
		line = s.Lines[at.Line-1]
	}
	runes := []rune(printable(mask(line)))
	if column, hidden := s.hidden[at.Line]; hidden {
		for i := max(column-1, 0); i < len(runes); i++ {
			runes[i] = '*'
		}
	}
	caret := min(max(at.Column-1, 0), len(runes))
	start := max(0, min(caret-maxExcerpt/2, len(runes)-maxExcerpt))
	end := min(len(runes), start+maxExcerpt)
	return string(runes[start:end]), caret - start
}

// private matches the parts of URLs that are not shown. The first group of each expression is the
// text before the part, and the second the text after it. The parts are: a user and a password up
// to the last @, since a password that was not escaped may contain anything; the same in a URL
// without a scheme; and a query, which often contains a key.
var private = []*regexp.Regexp{
	regexp.MustCompile(`(://)[^\s"']+(@)`),
	regexp.MustCompile(`()[^\s"'/:@{]+:[^\s"'/@]+(@)`),
	regexp.MustCompile(`(//[^\s"'?]+\?)[^\s"']+()`),
}

// mask replaces each character of these parts by *, so that the offset of the caret does not change.
func mask(s string) string {
	for _, part := range private {
		s = part.ReplaceAllStringFunc(s, func(found string) string {
			ends := part.FindStringSubmatch(found)
			hidden := utf8.RuneCountInString(found) - utf8.RuneCountInString(ends[1]+ends[2])
			return ends[1] + strings.Repeat("*", hidden) + ends[2]
		})
	}
	return s
}

// printable replaces characters that would move a terminal's cursor, except tabs.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// Err returns the errors, in the order of the file, or nil.
func (s *Source) Err() error {
	if len(s.errs) == 0 {
		return nil
	}
	slices.SortStableFunc(s.errs, func(a, b *Error) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	for _, e := range s.errs {
		if e.Line > 0 {
			e.Excerpt, e.Caret = s.excerpt(Position{e.Line, e.Column})
		}
	}
	// An alias repeats a mistake, which is reported once.
	s.errs = slices.CompactFunc(s.errs, func(a, b *Error) bool { return *a == *b })
	if s.more {
		s.errs = append(s.errs, &Error{File: s.name, Message: fmt.Sprintf("more than %d errors, the rest is not shown", MaxErrors)})
	}
	return s.errs
}
