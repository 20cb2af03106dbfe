package codec

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// ValidateName checks the names of jobs, queues, nodes or namespaces: 1 to 64 characters of
// A-Z a-z 0-9 _ and -. Names are parts of subjects, keys and consumer names, where a dot, a
// star or a space has a meaning. what names the kind of name in the error ("job", "queue").
func ValidateName(what string, names ...string) error {
	notPlain := func(r rune) bool { return r >= utf8.RuneSelf || !Plain(byte(r)) }
	for _, name := range names {
		if name == "" || len(name) > 64 || strings.ContainsFunc(name, notPlain) {
			return fmt.Errorf("%w %s name %q: want 1 to 64 characters of A-Z a-z 0-9 _ -", ErrInvalid, what, Clip(name))
		}
	}
	return nil
}

// ValidateJobFilter checks the job's name in a filter. An empty name selects all jobs.
func ValidateJobFilter(name string) error {
	if name == "" {
		return nil
	}
	return ValidateName("job", name)
}

// Clip cuts a text that an error quotes to 80 bytes.
func Clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}

// ClipTo cuts s to most bytes and appends "...". A text that it has cut before stays unchanged.
func ClipTo(s string, most int) string {
	if len(s) <= most+len("...") {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// OneLine returns the text of an error with its lines joined.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// Plain reports whether c may be part of a name.
func Plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// Reoffer matches what follows the slot ID in the Msg-Id of a slot that is offered again.
var Reoffer = regexp.MustCompile(`/r[0-9]+$`)
