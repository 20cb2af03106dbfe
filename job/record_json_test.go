package job

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/codec"
)

// If MarshalJSON left out a member of recordWire, the next write of a record would lose that member.
func TestARecordIsWrittenAsItsWireFormSays(t *testing.T) {
	t.Parallel()
	instant := rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "zero") {
			return time.Time{}
		}
		return time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
	})
	attempt := rapid.Custom(func(t *rapid.T) Attempt {
		return Attempt{
			rapid.IntRange(0, 9).Draw(t, "n"), rapid.String().Draw(t, "node"), rapid.Uint64().Draw(t, "fence"),
			instant.Draw(t, "started"), instant.Draw(t, "finished"), rapid.String().Draw(t, "error"), rapid.String().Draw(t, "output"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		r := Record{
			Slot:        NewSlot("report", time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "at"), 0)),
			Queue:       rapid.String().Draw(t, "queue"),
			State:       State(rapid.String().Draw(t, "state")),
			Attempt:     rapid.IntRange(-3, math.MaxInt32).Draw(t, "attempt"),
			Attempts:    rapid.SliceOfN(attempt, 0, 3).Draw(t, "attempts"),
			MaxAttempts: rapid.IntRange(0, 3).Draw(t, "max"),
			Node:        rapid.String().Draw(t, "node"),
			Nonce:       rapid.String().Draw(t, "nonce"),
			JobRevision: rapid.Uint64Range(0, 3).Draw(t, "revision"),
			Due:         instant.Draw(t, "due"),
			Published:   instant.Draw(t, "published"),
			Publisher:   rapid.String().Draw(t, "publisher"),
			Event:       rapid.Bool().Draw(t, "event"),
			Payload:     rapid.SliceOf(rapid.Byte()).Draw(t, "payload"),
			RetryAt:     instant.Draw(t, "retry"),
			Finished:    instant.Draw(t, "finished"),
			Error:       rapid.String().Draw(t, "error"),
			Output:      rapid.String().Draw(t, "output"),
			Shards:      rapid.IntRange(0, 3).Draw(t, "shards"),
			Count:       rapid.IntRange(0, 3).Draw(t, "count"),
			Last:        instant.Draw(t, "last"),

			Result:        json.RawMessage(rapid.SampledFrom([]string{"", "1", `{"a":"<b>"}`, `"{"`}).Draw(t, "result")),
			ResultDropped: rapid.IntRange(0, 3).Draw(t, "dropped"),
			Shadow:        rapid.IntRange(0, 3).Draw(t, "shadow"),
		}
		want, err := codec.Marshal(recordWire{codec.Version, r.Slot.ID(), recordMembers(r)})
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.MarshalJSON()
		if err != nil || string(got) != string(want) {
			t.Fatalf("%v\n got %s\nwant %s", err, got, want)
		}
	})
}

func BenchmarkRecordMarshal(b *testing.B) {
	at := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	r := Record{
		Slot: NewSlot("report", at), Queue: "default", State: Succeeded, Attempt: 1, MaxAttempts: 3,
		Attempts: []Attempt{{1, "web1-711-1763700000-abcdefgh", 42, at, at.Add(time.Second), "", ""}},
		Node:     "web1-711-1763700000-abcdefgh", Nonce: "web1-711-1763700000-abcdefgh#99", JobRevision: 7,
		Due: at, Published: at, Publisher: "web1-711-1763700000-abcdefgh", Finished: at,
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.MarshalJSON(); err != nil {
			b.Fatal(err)
		}
	}
}
