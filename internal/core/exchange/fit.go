package exchange

import (
	"strings"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/output"
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

// AppendRecord appends the record's JSON to b. If that has more than limit bytes, it cuts
// the errors of old attempts, then their outputs, then the last output, then the result, the
// oldest attempts, and the error, until it fits. It cuts nothing else, so the JSON may still be
// too long. A limit of 0 means none.
func AppendRecord(b []byte, r job.Record, limit int) ([]byte, error) {
	data, err := r.AppendJSON(b)
	for _, cut := range []func(r *job.Record, over int){cutOldErrors, cutOldOutputs, cutOutput, dropResult, cutHistory, cutError} {
		over := len(data) - len(b) - limit
		if err != nil || limit <= 0 || over <= 0 {
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

// cutOldOutputs cuts the outputs of the earlier attempts, the oldest first. The output of the last
// attempt is in r.Output.
func cutOldOutputs(r *job.Record, over int) {
	for i := range r.Attempts {
		if over <= 0 {
			return
		}
		text := &r.Attempts[i].Output // cutOldErrors has copied the attempts
		before := output.WidthOf(*text, output.QuotedWidth)
		*text = output.ShrinkBy(*text, over)
		over -= before - output.WidthOf(*text, output.QuotedWidth)
	}
}

func cutOutput(r *job.Record, over int) { r.Output = output.ShrinkBy(r.Output, over) }

func dropResult(r *job.Record, _ int) {
	if len(r.Result) > 0 {
		r.Result, r.ResultDropped = nil, len(r.Result)
	}
}

// DropsResult reports whether AppendRecord leaves the record's result out. It is cheap if there is
// plenty of room.
func DropsResult(r job.Record, limit int) bool {
	const rest = 64 << 10 // more than the rest of a record takes after all its texts were cut
	if limit <= 0 || len(r.Result) == 0 || len(r.Result)+2*len(r.Payload)+rest <= limit {
		return false
	}
	data, err := AppendRecord(nil, r, limit)
	if err != nil {
		return false
	}
	kept, err := DecodeRecord(data)
	return err == nil && kept.ResultDropped > 0
}

func cutHistory(r *job.Record, _ int) { r.Attempts = codec.Last(r.Attempts, leastHistory) }

// cutError cuts the record's error and its copy in the last attempt.
func cutError(r *job.Record, over int) {
	r.Error = cutBy(r.Error, over)
	if n := len(r.Attempts); n > 0 {
		r.Attempts = append([]job.Attempt(nil), r.Attempts...)
		r.Attempts[n-1].Error = cutBy(r.Attempts[n-1].Error, over)
	}
}

// MarshalEvent returns the event's JSON. If that has more than limit bytes, it cuts the
// output, and then the error. A limit of 0 means none.
func MarshalEvent(e job.Event, limit int) ([]byte, error) {
	data, err := e.MarshalJSON()
	if over := len(data) - limit; err == nil && limit > 0 && over > 0 && e.Output != "" {
		e.Output = output.ShrinkBy(e.Output, over)
		data, err = e.MarshalJSON()
	}
	if over := len(data) - limit; err == nil && limit > 0 && over > 0 {
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
	if first, _ := output.First(s, room+output.WidthOf(s, output.QuotedWidth), output.QuotedWidth); first != s {
		return first + cutMark
	}
	return s
}
