package job_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

func sampleRecord() job.Record {
	at := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	return job.Record{
		Slot: job.NewSlot("report", at), Queue: "default", State: job.Succeeded, Attempt: 2, MaxAttempts: 3,
		Attempts: []job.Attempt{
			{Number: 1, Node: "a-1-1-x", Fence: 7, Started: at, Finished: at.Add(time.Second), Error: "boom"},
			{Number: 2, Node: "b-1-1-y", Fence: 9, Started: at.Add(2 * time.Second), Finished: at.Add(3 * time.Second)},
		},
		Node: "b-1-1-y", Nonce: "b-1-1-y#4", JobRevision: 3, Due: at, Published: at.Add(time.Millisecond),
		Finished: at.Add(3 * time.Second), Output: "done\n",
	}
}

func TestRecordRoundTripsWithWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for name, extra := range map[string]codec.Extra{"plain": nil, "newer": {"shade": json.RawMessage(`{"n":1}`)}} {
		r := sampleRecord()
		r.Extra = extra
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := exchange.DecodeRecord(data)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(got, r) {
			t.Errorf("%s: got\n%+v\nwant\n%+v", name, got, r)
		}
	}
}

func BenchmarkEncodeRecord(b *testing.B) {
	r := sampleRecord()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := json.Marshal(r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeRecord(b *testing.B) {
	data, err := json.Marshal(sampleRecord())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := exchange.DecodeRecord(data); err != nil {
			b.Fatal(err)
		}
	}
}
