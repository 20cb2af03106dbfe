package job

import (
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// MarshalJSON must write every member of Event.
func TestAnEventIsWrittenAsItsMembersSay(t *testing.T) {
	t.Parallel()
	type wire Event // has no MarshalJSON
	instant := rapid.Custom(func(t *rapid.T) time.Time {
		return time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
	})
	rapid.Check(t, func(t *rapid.T) {
		e := Event{
			V: rapid.IntRange(0, 2).Draw(t, "v"), Kind: EventKind(rapid.String().Draw(t, "kind")), Time: instant.Draw(t, "time"),
			Node: rapid.String().Draw(t, "node"), ID: rapid.String().Draw(t, "id"), Job: rapid.String().Draw(t, "job"),
			Attempt: rapid.IntRange(0, 3).Draw(t, "attempt"), Fence: rapid.Uint64().Draw(t, "fence"), Error: rapid.String().Draw(t, "error"),
			Peer: rapid.String().Draw(t, "peer"), Alert: State(rapid.String().Draw(t, "alert")), JobRevision: rapid.Uint64().Draw(t, "revision"),
			Count: rapid.IntRange(0, 3).Draw(t, "count"), Reopened: rapid.Bool().Draw(t, "reopened"),
		}
		if rapid.Bool().Draw(t, "range") {
			e.Last = instant.Draw(t, "last")
		}
		if rapid.Bool().Draw(t, "reports") {
			e.Progress = &Progress{rapid.Int().Draw(t, "done"), rapid.Int().Draw(t, "total"), rapid.String().Draw(t, "text"), instant.Draw(t, "reported")}
			e.Output, e.From, e.To = rapid.String().Draw(t, "output"), rapid.Int64().Draw(t, "from"), rapid.Int64().Draw(t, "to")
		}
		want, err := json.Marshal(wire(e))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(e); err != nil || string(got) != string(want) {
			t.Fatalf("%v\n got %s\nwant %s", err, got, want)
		}
	})
}
