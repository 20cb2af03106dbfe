package codec

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// ValidateName refuses what cannot be the name of a job, a queue or a
// namespace. Names become parts of subjects, keys and consumer names, where a
// dot, a star or a space would mean something; so they are 1 to 64 characters
// of A-Z a-z 0-9 _ and -. what says whose name it is ("job", "queue").
func ValidateName(what, name string) error {
	notPlain := func(r rune) bool { return r >= utf8.RuneSelf || !Plain(byte(r)) }
	if 0 < len(name) && len(name) <= 64 && !strings.ContainsFunc(name, notPlain) {
		return nil
	}
	return fmt.Errorf("%w %s name %q: want 1 to 64 characters of A-Z a-z 0-9 _ -", ErrInvalid, what, Clip(name))
}

// clip keeps a quoted bad input from filling the terminal.
func Clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}

// clipTo cuts s, and says so. What was cut stays as it is.
func ClipTo(s string, most int) string {
	if len(s) <= most+len("...") {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

func Plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// reoffer is what stands behind the slot ID in the Msg-Id of a message that was
// offered again.
var Reoffer = regexp.MustCompile(`/r[0-9]+$`)
