package job

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// Reporter takes what a handler reports while it runs. Its methods are safe for concurrent use.
type Reporter interface {
	// SetResult keeps a result, which is JSON of at most MaxResult bytes.
	SetResult(result json.RawMessage) error

	// Progress keeps the newest progress. It does not wait.
	Progress(p Progress)
}

// Progress is how much of its work an attempt has done.
type Progress struct {
	Done int `json:"done"`

	// Total is how much there is to do. Zero: unknown.
	Total int `json:"total,omitempty"`

	// Text says what is being done, in at most 200 bytes.
	Text string `json:"text,omitempty"`

	// Time is when it was reported.
	Time time.Time `json:"time,omitzero"`
}

// SetResult keeps v, encoded as JSON, as the result of the slot if this attempt succeeds. The
// result is in the slot's record, and in Run.Results of the jobs that come after this one. It is
// for small values, such as counts, IDs and addresses: at most MaxResult bytes of JSON. The last
// call counts; nil removes the result.
//
// If v cannot be encoded or is too large, the error wraps ErrInvalid, and the result of the
// previous call stays. A call after the handler has returned also fails with ErrInvalid.
func (r Run) SetResult(v any) error {
	data, err := codec.Marshal(v)
	switch {
	case err != nil:
		return fmt.Errorf("set result: %w value: %w", ErrInvalid, err)
	case len(data) > MaxResult:
		return fmt.Errorf("set result: %w value: %d bytes of JSON, at most %d KiB", ErrInvalid, len(data), MaxResult>>10)
	case r.Reporter == nil:
		return nil
	case string(data) == "null":
		data = nil
	}
	if err := r.Reporter.SetResult(data); err != nil {
		return fmt.Errorf("set result: %w", err)
	}
	return nil
}

// Progress reports that done of total units are done, and what is being done. A total of zero
// means that it is unknown. "cronce slot show" shows the newest report while the attempt runs,
// and "cronce watch" one report a second. Reports are not stored. Progress never waits for the
// broker, and may be called as often as you like. It keeps the first 200 bytes of the text.
func (r Run) Progress(done, total int, text string) {
	if r.Reporter != nil {
		r.Reporter.Progress(Progress{Done: max(done, 0), Total: max(total, 0), Text: codec.ClipTo(strings.ToValidUTF8(text, "\uFFFD"), codec.MaxOldBytes)})
	}
}

func (p *Progress) bound(b *codec.Bounds) {
	b.Number("progress.done", p.Done, 0, codec.MaxCount)
	b.Number("progress.total", p.Total, 0, codec.MaxCount)
	b.Times("progress.time", &p.Time)
	codec.CutText(codec.MaxText, &p.Text)
}
