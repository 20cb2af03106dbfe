package job_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

func drawSlot(t *rapid.T) job.Slot {
	slot := drawWhole(t)
	if !slot.Range && rapid.Bool().Draw(t, "split") {
		n := rapid.IntRange(2, job.MaxShards).Draw(t, "shards")
		slot = slot.WithShard(rapid.IntRange(1, n).Draw(t, "shard"), n)
	}
	return slot
}

func drawWhole(t *rapid.T) job.Slot {
	name := rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`).Draw(t, "job")
	if rapid.Bool().Draw(t, "triggered") {
		likeAShard, text := rapid.StringMatching(`[0-9]{1,3}of[0-9]{1,3}`), rapid.StringOfN(rapid.Rune(), 1, -1, job.MaxToken)
		token := rapid.OneOf(likeAShard, text).Filter(func(s string) bool { return job.ValidateToken(s) == nil }).Draw(t, "token")
		return job.Slot{Job: name, Token: token}
	}
	u := rapid.Int64Range(-62135596800, 253402300799).Draw(t, "instant")
	slot := job.NewSlot(name, time.Unix(u, rapid.Int64Range(0, 999999999).Draw(t, "fraction")))
	slot.Range = rapid.Bool().Draw(t, "range")
	return slot
}

func TestSlotIDAndKeyNameOneSlotAndRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slot := drawSlot(t)
		if got, err := job.ParseSlotID(slot.ID()); err != nil || got != slot {
			t.Fatalf("%q reads %+v, %v", slot.ID(), got, err)
		}
		if got, err := job.ParseSlotKey(slot.Key()); err != nil || got != slot {
			t.Fatalf("%q reads %+v, %v", slot.Key(), got, err)
		}
		if strings.Trim(slot.Key(), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-=.") != "" {
			t.Fatalf("%q is no key of a bucket", slot.Key())
		}
		if other := drawSlot(t); (other.ID() == slot.ID()) != (other == slot) || (other.Key() == slot.Key()) != (other == slot) {
			t.Fatalf("%+v and %+v share a name", slot, other)
		}
	})
}

func TestSlotIDHasOneSpelling(t *testing.T) {
	t.Parallel()
	for _, id := range []string{
		"", "report", ":", "report:", ":2026-11-21T07:00:00Z", "re port:2026-11-21T07:00:00Z", "report.x:2026-11-21T07:00:00Z",
		"report:2026-11-21", "report:2026-11-21T07:00:00", "report:2026-11-21T07:00:00z", "report:2026-11-21 07:00:00Z",
		"report:2026-11-21T07:00:00.5Z", "report:2026-11-21T07:00:00.000Z", "report:2026-11-21T07:00:00,5Z",
		"report:2026-11-21T08:00:00+01:00", "report:2026-02-30T07:00:00Z", "report:2026-11-21T24:00:00Z", "report:2026-11-21T7:00:00Z",
		"report:@", "report:@ x", "report:@x ", "report:@a\nb", "report:@" + strings.Repeat("x", job.MaxToken+1), "report:m.", "report:m.@x",
		"report:2026-11-21T07:00:00Z/r2",
	} {
		if slot, err := job.ParseSlotID(id); err == nil {
			t.Errorf("%q reads %+v", id, slot)
		} else {
			refusalIsClear(t, err, id)
		}
	}
}

func TestSlotKeyHasOneSpelling(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		"", "report", "report.", "report.20261121", "report.20261121T070000", "report.20261121T070000.5Z", "report.t.", "report.t.a b",
		"report.t.=4", "report.t.=ZZ", "report.t.=41", "report.t.=3d", "report.t.a=", "report.m.", "re port.20261121T070000Z",
	} {
		if slot, err := job.ParseSlotKey(key); !errors.Is(err, job.ErrInvalid) {
			t.Errorf("%q reads %+v, %v", key, slot, err)
		}
	}
}

func TestNewSlotIsComparable(t *testing.T) {
	t.Parallel()
	berlin := zone(t, "Europe/Berlin")
	now := time.Now() // has a monotonic reading, which == compares
	if job.NewSlot("a", now) != job.NewSlot("a", now.Round(0).In(berlin)) {
		t.Error("one instant makes two slots")
	}
}

func TestNamesAreWhatSubjectsAndKeysCanHold(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"a", "A-b_9", strings.Repeat("x", 64)} {
		if err := codec.ValidateName("job", good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "a.b", "a b", "a*", ">", "ä", "a\n", "a:b", "a/b", strings.Repeat("x", 65)} {
		err := codec.ValidateName("queue", bad)
		if !errors.Is(err, job.ErrInvalid) || !strings.Contains(err.Error(), fmt.Sprintf("queue name %q", bad)) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func ExampleParseSlotID() {
	slot, _ := job.ParseSlotID("report:2026-11-21T07:00:00Z")
	fmt.Println(slot.Job, slot.At, slot.Key())
	_, err := job.ParseSlotID("report:2026-11-21T08:00:00+01:00")
	fmt.Println(err)
	// Output:
	// report 2026-11-21 07:00:00 +0000 UTC report.20261121T070000Z
	// invalid slot ID "report:2026-11-21T08:00:00+01:00": "2026-11-21T08:00:00+01:00" is not an instant in UTC and whole seconds, like 2026-11-21T07:00:00Z
}
