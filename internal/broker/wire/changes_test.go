package wire

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestCursorBeginsAgainInAnotherStream(t *testing.T) {
	t.Parallel()
	created, stored := time.Unix(1000, 0), time.Unix(2000, 0)
	for name, c := range map[string]struct {
		created time.Time
		last    uint64
		want    Cursor
	}{
		"the same":                      {created, 7, Cursor{next: 8, created: created, stored: stored}},
		"the same, with more":           {created, 9, Cursor{next: 8, created: created, stored: stored}},
		"restored":                      {created, 6, Cursor{next: 1, created: created, stored: stored, since: stored.Add(1)}},
		"created anew, with as many":    {created.Add(1), 7, Cursor{next: 1, created: created.Add(1), stored: stored}},
		"created anew, with fewer":      {created.Add(1), 6, Cursor{next: 1, created: created.Add(1), stored: stored}},
		"created anew, and still empty": {created.Add(1), 0, Cursor{next: 1, created: created.Add(1), stored: stored}},
	} {
		at := CursorAfter(7)
		for _, info := range []jetstream.StreamInfo{
			{Created: created, State: jetstream.StreamState{LastSeq: 7}},
			{Created: c.created, State: jetstream.StreamState{LastSeq: c.last}},
		} {
			at.resume(&info, stored)
		}
		if at != c.want {
			t.Errorf("%s: %+v, want %+v", name, at, c.want)
		}
	}
}
