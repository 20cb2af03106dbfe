package core

import (
	"strings"
	"unicode/utf8"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

const (
	// cutMark ends a text that was cut to fit the server's max_payload.
	cutMark = "... (cut: the server's max_payload)"

	// A record that is too large keeps leastHistory attempts, and leastText bytes of the
	// error of each but the last.
	leastHistory = 8
	leastText    = 100
)

// AppendRecord appends the record's JSON to b. If that has more than most bytes, it cuts
// the errors of old attempts, then the output, then the oldest attempts, then the error,
// until it fits. It cuts nothing else, so the result may still be too long. A most of 0
// means no limit.
func AppendRecord(b []byte, r job.Record, most int) ([]byte, error) {
	data, err := r.AppendJSON(b)
	for _, cut := range []func(r *job.Record, over int){cutOldErrors, cutOutput, cutHistory, cutError} {
		over := len(data) - len(b) - most
		if err != nil || most <= 0 || over <= 0 {
			break
		}
		cut(&r, over)
		data, err = r.AppendJSON(b)
	}
	return data, err
}

func cutOldErrors(r *job.Record, _ int) {
	attempts := append([]job.Attempt(nil), r.Attempts...)
	for i := range max(len(attempts)-1, 0) {
		if text := &attempts[i].Error; len(*text) > leastText+len(cutMark) {
			*text = strings.ToValidUTF8((*text)[:leastText], "") + cutMark
		}
	}
	r.Attempts = attempts
}

func cutOutput(r *job.Record, over int) { r.Output = cutBy(r.Output, over) }

func cutHistory(r *job.Record, _ int) { r.Attempts = codec.Last(r.Attempts, leastHistory) }

// cutError cuts the record's error and its copy in the last attempt.
func cutError(r *job.Record, over int) {
	r.Error = cutBy(r.Error, over)
	if n := len(r.Attempts); n > 0 {
		r.Attempts = append([]job.Attempt(nil), r.Attempts...)
		r.Attempts[n-1].Error = cutBy(r.Attempts[n-1].Error, over)
	}
}

// MarshalEvent returns the event's JSON. If that has more than most bytes, it cuts the
// error. A most of 0 means no limit.
func MarshalEvent(e job.Event, most int) ([]byte, error) {
	data, err := e.MarshalJSON()
	if over := len(data) - most; err == nil && most > 0 && over > 0 {
		e.Error = cutBy(e.Error, over)
		return e.MarshalJSON()
	}
	return data, err
}

// cutBy cuts s, and appends cutMark, so that its JSON is shorter by at least over bytes.
// If s is not that long, only the mark is left.
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

// quotedWidth returns how many bytes a rune takes in a JSON string, at most.
func quotedWidth(r rune) int {
	switch {
	case r == '"' || r == '\\':
		return 2
	case r < ' ' || r == 0x7f || r == utf8.RuneError || r == '\u2028' || r == '\u2029':
		return 6
	}
	return utf8.RuneLen(r)
}
