package spec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cronce-io/cronce/internal/codec"
	nearest "github.com/cronce-io/cronce/internal/text/suggest"
	"github.com/cronce-io/cronce/job"
)

// Error is one mistake in a file.
type Error struct {
	// File is the name given to Parse. Line and Column count from 1, columns in characters. Both
	// are zero if the mistake concerns the whole file.
	File         string
	Line, Column int

	// Message says what is wrong and what would be right, in one line.
	Message string

	// Excerpt is the line of the mistake, or the part of a long line around Column. Caret is the
	// offset of Column in it, in characters.
	Excerpt string
	Caret   int
}

// Error returns "file:line:column: message", and below it the line with a caret.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Message
	}
	number := strconv.Itoa(e.Line)
	// Tabs stay, so that the caret is below its character at any tab width.
	pad := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, string([]rune(e.Excerpt)[:e.Caret]))
	return fmt.Sprintf("%s:%d:%d: %s\n    %s | %s\n    %*s | %s^",
		e.File, e.Line, e.Column, e.Message, number, e.Excerpt, len(number), "", pad)
}

// Unwrap returns job.ErrInvalid.
func (e *Error) Unwrap() error { return job.ErrInvalid }

// Errors are all mistakes of a file, in the file's order.
type Errors []*Error

func (e Errors) Error() string {
	return strings.Join(codec.Map(e, (*Error).Error), "\n")
}

// Unwrap returns the mistakes, for errors.Is and errors.As.
func (e Errors) Unwrap() []error {
	return codec.Map(e, func(err *Error) error { return err })
}

// suggest asks whether the most similar word was meant. If none is similar, it lists the words.
func suggest(word string, words []string) string {
	if near := nearest.Nearest(word, words); near != "" {
		return "did you mean " + strconv.Quote(near) + "?"
	}
	return "want " + codec.Alternatives(words...)
}

// suggestField is suggest for an unknown field. For exec, http and nats, it says that they belong
// below "action", which no similar word would show.
func suggestField(name string, fields []string) string {
	if slices.Contains([]string{"exec", "http", "nats"}, name) && slices.Contains(fields, "action") {
		return "it goes below \"action\""
	}
	return suggest(name, fields)
}
