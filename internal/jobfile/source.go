package jobfile

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
	maxSize = 4 << 20

	// maxErrors ends the report on a file that is not a job file at all, or
	// that repeats one mistake by an alias in thousands of places.
	maxErrors = 100

	// maxExcerpt is the most of a line that an error shows, in characters.
	maxExcerpt = 100
)

// source is the text of a file, and collects what is wrong with it.
type source struct {
	name  string
	text  string
	lines []string
	errs  Errors
	more  bool
}

type position struct{ line, column int }

// newSource checks that data is text. The line that a mistake is on can be shown
// even when it is not.
func newSource(name string, data []byte) *source {
	text := strings.TrimPrefix(string(data), "\ufeff")
	// YAML reads both line ends alike, but its parser counts CRLF twice in
	// quoted text.
	text = strings.ReplaceAll(text, "\r\n", "\n")
	s := &source{name: name, text: text, lines: strings.Split(text, "\n")}
	switch {
	case len(data) > maxSize:
		s.fail(position{}, "the file is larger than %d MiB: split it", maxSize>>20)
		return s
	case strings.TrimSpace(text) == "":
		s.fail(position{}, "the file is empty: want \"version: 1\" and \"jobs:\"")
		return s
	}
	s.checkText()
	return s
}

// checkText refuses, once, bytes that are not UTF-8 and controls that YAML does
// not allow. They would be shown, logged and stored as something else.
func (s *source) checkText() {
	at := position{1, 0}
	for i, r := range s.text {
		at.column++
		switch {
		case r == '\n':
			at = position{at.line + 1, 0}
		case r == utf8.RuneError && !strings.HasPrefix(s.text[i:], "\ufffd"):
			s.fail(at, "byte 0x%02x is not UTF-8: save the file as UTF-8", s.text[i])
			return
		case r != '\t' && unicode.IsControl(r):
			s.fail(at, "control character U+%04X: want plain text", r)
			return
		}
	}
}

func (s *source) fail(at position, format string, args ...any) {
	if len(s.errs) == maxErrors {
		s.more = true
		return
	}
	// Names and anchors may hold anything: a message is one line all the same.
	e := &Error{File: s.name, Line: at.line, Column: at.column, Message: printable(fmt.Sprintf(format, args...))}
	if at.line > 0 {
		e.Excerpt, e.Caret = s.excerpt(at)
	}
	s.errs = append(s.errs, e)
}

// excerpt returns the line, or what is around the column of a long one, fit for
// a terminal, and where in it the column is.
func (s *source) excerpt(at position) (string, int) {
	line := ""
	if at.line <= len(s.lines) {
		line = s.lines[at.line-1]
	}
	runes := []rune(printable(mask(line)))
	caret := min(max(at.column-1, 0), len(runes))
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

// err returns what was found, in the order of the file.
func (s *source) err() error {
	if len(s.errs) == 0 {
		return nil
	}
	slices.SortStableFunc(s.errs, func(a, b *Error) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	// An alias repeats a mistake; one report of it is enough.
	s.errs = slices.CompactFunc(s.errs, func(a, b *Error) bool { return *a == *b })
	if s.more {
		s.errs = append(s.errs, &Error{File: s.name, Message: fmt.Sprintf("more than %d errors, the rest is not shown", maxErrors)})
	}
	return s.errs
}
