package exchange

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// Invariant 11: what cannot be stored is cut. The largest possible record is cut to the limit of any
// server that accepts 16 KiB. The cut record has a mark, and keeps its identity and state.
func TestWhatCannotBeStoredIsCut(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	for _, text := range []string{"x", "<", "\"", "\x00", "é", "\xff", "\u2028"} {
		r := job.Record{Slot: job.NewSlot("report", at), Queue: "default", State: job.Failed, Attempt: 1000, MaxAttempts: 1000, Node: "n", Nonce: "nonce", Finished: at}
		for i := range codec.MaxHistory {
			r.Attempts = append(r.Attempts, job.Attempt{Number: 801 + i, Node: "n", Fence: 1, Started: at, Finished: at, Error: strings.Repeat(text, codec.MaxText/len(text)), Output: strings.Repeat(text, 5000/len(text))})
		}
		r.Error = r.Attempts[0].Error
		r.Output = strings.Repeat(text, job.MaxOutput/len(text))
		r.Result = json.RawMessage(`"` + strings.Repeat("x", job.MaxResult-2) + `"`)
		for _, most := range []int{16 << 10, 32 << 10, 64 << 10, 1 << 20} {
			before := fmt.Sprint(r)
			data, err := AppendRecord([]byte("prefix"), r, most)
			data, prefixed := bytes.CutPrefix(data, []byte("prefix"))
			if err != nil || !prefixed || len(data) > most {
				t.Errorf("%q: %d bytes, %v; want at most %d", text, len(data), err, most)
				continue
			}
			if fmt.Sprint(r) != before {
				t.Fatal("the caller's record was changed")
			}
			got, err := DecodeRecord(data)
			if err != nil || got.Slot != r.Slot || got.State != r.State || got.Attempt != r.Attempt || got.Nonce != r.Nonce || got.Attempts[len(got.Attempts)-1].Number != 1000 || len(got.Result)+got.ResultDropped != job.MaxResult {
				t.Errorf("%q, %d: %v: %+v", text, most, err, got)
			}
			if plain, _ := r.MarshalJSON(); len(plain) > most && !bytes.Contains(data, []byte(cutMark)) {
				t.Errorf("%q, %d: it was cut, and does not say so", text, most)
			}
		}
		e := job.Event{V: codec.Version, Kind: job.EventFailed, Time: at, Node: "n", ID: r.Slot.ID(), Job: "report", Error: r.Error}
		if data, err := MarshalEvent(e, 1000); err != nil || len(data) > 1000 || !bytes.Contains(data, []byte(cutMark)) {
			t.Errorf("%q: an event of %d bytes, %v; want at most 1000, and a mark", text, len(data), err)
		}
	}
}

// A record within the limit is stored unchanged.
func TestWhatFitsIsNotCut(t *testing.T) {
	t.Parallel()
	r := job.Record{Slot: job.NewSlot("report", time.Unix(0, 0)), State: job.Succeeded, Output: strings.Repeat("<&>", 1000)}
	plain, err := r.MarshalJSON()
	if err != nil || len(plain) > 3500 {
		t.Fatalf("%d bytes, %v; want HTML not escaped", len(plain), err)
	}
	for _, most := range []int{0, len(plain), 1 << 20} {
		if data, err := AppendRecord(nil, r, most); err != nil || !bytes.Equal(data, plain) {
			t.Errorf("%d: %v: it was changed", most, err)
		}
	}
}

// The outputs are cut before the result, that of the oldest attempt first. The result is dropped as
// a whole, and its size takes its place.
func TestOldOutputsAreCutBeforeTheResult(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 1000)
	r := job.Record{Slot: job.NewSlot("report", time.Unix(0, 0)), State: job.Succeeded, Output: text, Result: json.RawMessage(`{"rows":7}`)}
	for i := range 3 {
		r.Attempts = append(r.Attempts, job.Attempt{Number: i + 1, Output: text})
	}
	r.Attempts[2].Output = ""
	plain, err := r.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		over                int
		first, second, last bool // whether the output is whole
		result              string
	}{
		{1, false, true, true, `{"rows":7}`},
		{900, false, true, true, `{"rows":7}`},
		{1500, false, false, true, `{"rows":7}`},
		{2500, false, false, false, `{"rows":7}`},
		{len(plain) - 1, false, false, false, ""},
	} {
		if got, want := DropsResult(r, len(plain)-c.over), c.result == ""; got != want {
			t.Errorf("%d bytes too many: the result is dropped: %v, want %v", c.over, got, want)
		}
		data, err := AppendRecord(nil, r, len(plain)-c.over)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeRecord(data)
		if err != nil {
			t.Fatal(err)
		}
		if whole := [3]bool{got.Attempts[0].Output == text, got.Attempts[1].Output == text, got.Output == text}; whole != [3]bool{c.first, c.second, c.last} {
			t.Errorf("%d bytes too many: the outputs are whole: %v", c.over, whole)
		}
		if string(got.Result) != c.result || (got.ResultDropped == len(r.Result)) != (c.result == "") {
			t.Errorf("%d bytes too many: result %s, %d bytes dropped", c.over, got.Result, got.ResultDropped)
		}
	}
}
