package job_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

func FuzzParseSchedule(f *testing.F) {
	for _, text := range []string{
		"* * * * *", "*/5 7-9 1,15 JAN-MAR MON", "0 30 2 * * *", "H H(1-5) * * H/2", "@daily", "@every 90s", "@at 2027-01-01T00:00:00Z",
		// With these robfig/cron panics, loops for ever, or accepts invalid text.
		"TZ=", "TZ=0", "CRON_TZ=UTC", "TZ=UTC", "TZ=UTC * * * * *", "@every", "@every 0s", "@every -1s", "@every 9999999h",
		"*/0 * * * *", "0-0/99999999999 * * * *", "0-0/18446744073709551615 * * * *", "%", ",", ", , , , ,", "*-5 * * * *",
		"1-2-3 * * * *", "? ? ? ? ?", "0 0 30 2 *", "0 0 29 2 1", "⛄ * * * *", "\x00", "* * * * \xff", strings.Repeat("1,", 600) + " * * * *",
	} {
		f.Add(text, "Europe/Berlin", "2026-12-25", int64(1774746000))
		f.Add("0 2 * * *", text, text, int64(-1))
	}
	f.Fuzz(func(t *testing.T, text, zone, exclude string, after int64) {
		p := job.Plan{Schedule: text, Timezone: zone}
		if exclude != "" {
			p.Exclude = []string{exclude}
		}
		s, err := job.ParseSchedule("report", p)
		if err != nil {
			refusalIsClear(t, err, text, zone, exclude)
			return
		}
		from := time.Unix(after, 0)
		next := s.Next(from)
		if next.IsZero() {
			return
		}
		again, err := job.ParseSchedule("report", p)
		switch {
		case err != nil || !again.Next(from).Equal(next) || again.Key() != s.Key():
			t.Errorf("%+v: parsed twice: %v, %v", p, err, next)
		case !next.After(from) || next.Nanosecond() != 0:
			t.Errorf("%+v: Next(%v) = %v", p, from, next)
		case !s.Includes(next):
			t.Errorf("%+v: %v is not included", p, next)
		case !s.Next(next.Add(-time.Second)).Equal(next) && next.After(from):
			t.Errorf("%+v: there is a slot between %v and %v", p, from, next)
		}
		if last := s.Last(from, next, 2); len(last) != 1 || !last[0].Equal(next) {
			t.Errorf("%+v: Last(%v, %v) = %v", p, from, next, last)
		}
		if _, err := job.ParseSlotID(job.NewSlot("report", next).ID()); err != nil {
			t.Error(err)
		}
	})
}

func refusalIsClear(t *testing.T, err error, inputs ...string) {
	t.Helper()
	if !errors.Is(err, job.ErrInvalid) {
		t.Errorf("%v does not wrap ErrInvalid", err)
	}
	for _, input := range inputs {
		const most = 80
		if strings.Contains(err.Error(), strconv.Quote(input[:min(len(input), most)])) {
			return
		}
		if len(input) > most && strings.Contains(err.Error(), strconv.Quote(input[:most]+"...")) {
			return
		}
	}
	t.Errorf("%v quotes none of %q", err, inputs)
}

func FuzzParseSlotID(f *testing.F) {
	for _, id := range []string{
		"report:2026-11-21T07:00:00Z", "report:@order-17", "report:m.2026-11-21T07:00:00Z", "report:@", "report:", ":", "",
		"report:2026-11-21T07:00:00.0Z", "report:2026-11-21T07:00:00,5Z", "report:2026-11-21T07:00:00+00:00", "report:0000-01-01T00:00:00Z",
		"report:2026-02-30T00:00:00Z", "re port:@x", "a:@ x", "a:@\x00", "a:@⛄", "TZ=:@TZ=", "a:m.@x", "a:@" + strings.Repeat("x", 129),
	} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		slot, err := job.ParseSlotID(id)
		if err != nil {
			refusalIsClear(t, err, id)
			return
		}
		if slot.ID() != id {
			t.Errorf("%q has two spellings: %q", id, slot.ID())
		}
		again, err := job.ParseSlotKey(slot.Key())
		if err != nil || again != slot {
			t.Errorf("%q: its key %q reads %v, %v", id, slot.Key(), again, err)
		}
		message, err := core.ParseMessage(core.Message{Slot: slot}.Header())
		if err != nil || message.Slot != slot {
			t.Errorf("%q: its message reads %v, %v", id, message.Slot, err)
		}
	})
}
