package job

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// ValidateName refuses what cannot be the name of a job, a queue or a
// namespace. Names become parts of subjects, keys and consumer names, where a
// dot, a star or a space would mean something; so they are 1 to 64 characters
// of A-Z a-z 0-9 _ and -. what says whose name it is ("job", "queue").
func ValidateName(what, name string) error {
	notPlain := func(r rune) bool { return r >= utf8.RuneSelf || !plain(byte(r)) }
	if 0 < len(name) && len(name) <= 64 && !strings.ContainsFunc(name, notPlain) {
		return nil
	}
	return fmt.Errorf("%w %s name %q: want 1 to 64 characters of A-Z a-z 0-9 _ -", ErrInvalid, what, clip(name))
}

// clip keeps a quoted bad input from filling the terminal.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
