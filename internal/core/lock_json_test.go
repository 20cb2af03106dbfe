package core

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// If MarshalJSON left out a member of lockWire, the next write of the lock would lose that member.
func TestALockIsWrittenAsItsWireFormSays(t *testing.T) {
	t.Parallel()
	instant := rapid.Custom(func(t *rapid.T) time.Time {
		return time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
	})
	slot := rapid.Custom(func(t *rapid.T) LockSlot {
		return LockSlot{job.NewSlot("report", instant.Draw(t, "slot")), instant.Draw(t, "at"), rapid.Bool().Draw(t, "on time"), instant.Draw(t, "since"), rapid.StringMatching("[a-z]*").Draw(t, "node")}
	})
	rapid.Check(t, func(t *rapid.T) {
		l := Lock{
			Job: "report", Holders: rapid.SliceOfN(slot, 0, 3).Draw(t, "holders"), Waiting: rapid.Bool().Draw(t, "waiting"), Line: rapid.Uint64().Draw(t, "line"),
			Nonce: rapid.String().Draw(t, "nonce"),
		}
		if rapid.Bool().Draw(t, "newest") {
			l.Newest = instant.Draw(t, "newest one")
		}
		wire := func(slots []LockSlot) []lockSlotWire {
			all := []lockSlotWire{}
			for _, s := range slots {
				all = append(all, lockSlotWire{s.Slot.ID(), s.At, s.OnTime, s.Since, s.Node})
			}
			return all
		}
		want, err := codec.Marshal(lockWire{codec.Version, l.Job, wire(l.Holders), l.Waiting, l.Line, l.Newest, l.Nonce})
		if err != nil {
			t.Fatal(err)
		}
		got, err := l.MarshalJSON()
		if err != nil || string(got) != string(want) {
			t.Fatalf("%v\n got %s\nwant %s", err, got, want)
		}
	})
}
