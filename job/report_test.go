package job

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// reported keeps the last report of each kind.
type reported struct {
	result   json.RawMessage
	progress Progress
}

func (r *reported) SetResult(result json.RawMessage) error { r.result = result; return nil }
func (r *reported) Progress(p Progress)                    { r.progress = p }

func TestProgressTakesAnyNumbersAndText(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 500)
	for _, c := range []struct {
		done, total int
		text        string
		want        Progress
	}{
		{3, 7, "rows", Progress{Done: 3, Total: 7, Text: "rows"}},
		{3, 0, "", Progress{Done: 3}},
		{-1, -7, "", Progress{}},
		{8, 7, "", Progress{Done: 8, Total: 7}},
		{1, 1, "a\xffb", Progress{Done: 1, Total: 1, Text: "a\uFFFDb"}},
	} {
		var r reported
		if (Run{Reporter: &r}).Progress(c.done, c.total, c.text); r.progress != c.want {
			t.Errorf("Progress(%d, %d, %q) reports %+v, want %+v", c.done, c.total, c.text, r.progress, c.want)
		}
	}
	var r reported
	if (Run{Reporter: &r}).Progress(1, 2, long); len(r.progress.Text) > 210 || !utf8.ValidString(r.progress.Text) || !strings.HasPrefix(r.progress.Text, "éé") {
		t.Errorf("a long text is reported as %q", r.progress.Text)
	}
}

func TestSetResultRefusesWhatIsNoSmallJSON(t *testing.T) {
	t.Parallel()
	var r reported
	run := Run{Reporter: &r}
	for name, v := range map[string]any{
		"too large": strings.Repeat("x", MaxResult-1), "a channel": make(chan int), "no number": json.Number("x"), "no JSON": json.RawMessage("{"),
	} {
		if err := run.SetResult(v); !errors.Is(err, ErrInvalid) || r.result != nil {
			t.Errorf("%s: %v, result %.20s; want it refused", name, err, r.result)
		}
	}
	if err := run.SetResult(map[string]int{"rows": 7}); err != nil || string(r.result) != `{"rows":7}` {
		t.Errorf("%s, %v", r.result, err)
	}
	if err := run.SetResult(nil); err != nil || r.result != nil {
		t.Errorf("nil leaves %s, %v", r.result, err)
	}
}
