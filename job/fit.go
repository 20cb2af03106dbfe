package job

import (
	"strings"
	"unicode/utf8"

	"github.com/cronce-io/cronce/internal/codec"
)

const (
	// cutMark ends a text that was cut to what the server takes.
	cutMark = "... (cut: the server's max_payload)"

	// leastHistory is how many attempts stay in a record that is too large, leastText how
	// much of an error of theirs.
	leastHistory = 8
	leastText    = 100
)

// AppendWithin appends what AppendJSON does, of a record that is cut until that has at most
// so many bytes (0: however many): first the errors of its old attempts, then its output,
// then its oldest attempts and its error. What it is about is never cut: a record that does
// not fit then is returned as it is.
func (r Record) AppendWithin(b []byte, most int) ([]byte, error) {
	data, err := r.AppendJSON(b)
	for _, cut := range []func(r *Record, over int){cutOldErrors, cutOutput, cutHistory, cutError} {
		over := len(data) - len(b) - most
		if err != nil || most <= 0 || over <= 0 {
			break
		}
		cut(&r, over)
		data, err = r.AppendJSON(b)
	}
	return data, err
}

func cutOldErrors(r *Record, _ int) {
	attempts := append([]Attempt(nil), r.Attempts...)
	for i := range max(len(attempts)-1, 0) {
		if text := &attempts[i].Error; len(*text) > leastText+len(cutMark) {
			*text = strings.ToValidUTF8((*text)[:leastText], "") + cutMark
		}
	}
	r.Attempts = attempts
}

func cutOutput(r *Record, over int) { r.Output = cutBy(r.Output, over) }

func cutHistory(r *Record, _ int) { r.Attempts = codec.Last(r.Attempts, leastHistory) }

// cutError cuts the error where it stands: in the record, and with its last attempt.
func cutError(r *Record, over int) {
	r.Error = cutBy(r.Error, over)
	if n := len(r.Attempts); n > 0 {
		r.Attempts = append([]Attempt(nil), r.Attempts...)
		r.Attempts[n-1].Error = cutBy(r.Attempts[n-1].Error, over)
	}
}

// MarshalWithin is MarshalJSON of an event whose error is cut until that has at most so
// many bytes; 0: however many.
func (e Event) MarshalWithin(most int) ([]byte, error) {
	data, err := e.MarshalJSON()
	if over := len(data) - most; err == nil && most > 0 && over > 0 {
		e.Error = cutBy(e.Error, over)
		return e.MarshalJSON()
	}
	return data, err
}

// cutBy makes a text, as JSON, shorter by so many bytes at least, as far as it goes, and
// marks it.
func cutBy(s string, over int) string {
	if s == "" {
		return ""
	}
	room := -len(cutMark) - over
	for _, r := range s {
		room += quotedWidth(r)
	}
	for i, r := range s {
		if room -= quotedWidth(r); room < 0 {
			return s[:i] + cutMark
		}
	}
	return s
}

// quotedWidth is how many bytes a rune takes in a JSON string, at most.
func quotedWidth(r rune) int {
	switch {
	case r == '"' || r == '\\':
		return 2
	case r < ' ' || r == 0x7f || r == utf8.RuneError || r == '\u2028' || r == '\u2029':
		return 6
	}
	return utf8.RuneLen(r)
}
