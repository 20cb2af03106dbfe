package core

import (
	"bytes"
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
			r.Attempts = append(r.Attempts, job.Attempt{Number: 801 + i, Node: "n", Fence: 1, Started: at, Finished: at, Error: strings.Repeat(text, codec.MaxText/len(text))})
		}
		r.Error = r.Attempts[0].Error
		r.Output = strings.Repeat(text, job.MaxOutput/len(text))
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
			if err != nil || got.Slot != r.Slot || got.State != r.State || got.Attempt != r.Attempt || got.Nonce != r.Nonce || got.Attempts[len(got.Attempts)-1].Number != 1000 {
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
