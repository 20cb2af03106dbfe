package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxSize is the largest file that is read, in bytes.
	MaxSize = 4 << 20

	// maxErrors ends the report on a file that is not a job file at all, or
	// that repeats one mistake by an alias in thousands of places.
	MaxErrors = 100

	// maxExcerpt is the most of a line that an error shows, in characters.
	maxExcerpt = 100
)

// Source is the text of a file, and collects what is wrong with it.
type Source struct {
	name  string
	Text  string
	Lines []string
	errs  Errors
	more  bool

	// hidden is by line the column from which no error shows it.
	hidden map[int]int
}

type Position struct{ Line, Column int }

// NewSource checks that data is text. The line that a mistake is on can be shown
// even when it is not.
func NewSource(name string, data []byte) *Source {
	text := strings.TrimPrefix(string(data), "\ufeff")
	// YAML reads both line ends alike, but its parser counts CRLF twice in
	// quoted text.
	text = strings.ReplaceAll(text, "\r\n", "\n")
	s := &Source{name: name, Text: text, Lines: strings.Split(text, "\n")}
	switch {
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

// checkText refuses, once, bytes that are not UTF-8 and controls that YAML does
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

func (s *Source) Fail(at Position, format string, args ...any) {
	if len(s.errs) == MaxErrors {
		s.more = true
		return
	}
	// Names and anchors may hold anything: a message is one line all the same.
	s.errs = append(s.errs, &Error{File: s.name, Line: at.Line, Column: at.Column, Message: printable(fmt.Sprintf(format, args...))})
}

// hide keeps errors from showing the rest of a line, where a value begins that may be secret.
func (s *Source) hide(at Position) {
	if s.hidden == nil {
		s.hidden = map[int]int{}
	}
	if column, known := s.hidden[at.Line]; !known || at.Column < column {
		s.hidden[at.Line] = at.Column
	}
}

// excerpt returns the line, or what is around the column of a long one, fit for
// a terminal, and where in it the column is.
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

// private are the parts of URLs that are not shown, each before what ends it or after
// what begins it: a user and a password up to the last @, since a password that was not
// escaped may hold anything; the two where the scheme was forgotten; and a query, which
// often holds a key.
var private = []*regexp.Regexp{
	regexp.MustCompile(`(://)[^\s"']+(@)`),
	regexp.MustCompile(`()[^\s"'/:@{]+:[^\s"'/@]+(@)`),
	regexp.MustCompile(`(//[^\s"'?]+\?)[^\s"']+()`),
}

// mask hides these parts, character by character: a caret below stays where it is.
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

// printable replaces what would move a terminal's cursor, tabs excepted.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// Err returns what was found, in the order of the file.
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
	// An alias repeats a mistake; one report of it is enough.
	s.errs = slices.CompactFunc(s.errs, func(a, b *Error) bool { return *a == *b })
	if s.more {
		s.errs = append(s.errs, &Error{File: s.name, Message: fmt.Sprintf("more than %d errors, the rest is not shown", MaxErrors)})
	}
	return s.errs
}
