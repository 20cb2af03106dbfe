package core_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

func at(t testing.TB, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.UTC()
}

// drawSlot draws a planned slot, a range of slots, or a triggered run.
func drawSlot(t *rapid.T) job.Slot {
	name := rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`).Draw(t, "job")
	if token := rapid.StringMatching(`[a-z0-9/#@. -]{0,20}`).Draw(t, "token"); job.ValidateToken(token) == nil {
		return job.Slot{Job: name, Token: token}
	}
	slot := job.NewSlot(name, time.Unix(rapid.Int64Range(-62135596800, 253402300799).Draw(t, "instant"), 0))
	slot.Range = rapid.Bool().Draw(t, "range")
	return slot
}

func TestMessageRoundTripsThroughItsHeaders(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		instant := func(label string) time.Time {
			return time.Unix(rapid.Int64Range(1, 253402300799).Draw(t, label), 0).UTC()
		}
		m := core.Message{
			Slot:        drawSlot(t),
			JobRevision: rapid.Uint64().Draw(t, "revision"),
			Node:        rapid.StringMatching(`[a-z0-9-]{0,20}`).Draw(t, "node"),
			Due:         instant("due"),
			CaughtUp:    rapid.Bool().Draw(t, "caught up"),
			Backfill:    rapid.Bool().Draw(t, "backfill"),
			Missed:      rapid.IntRange(0, 1<<31-1).Draw(t, "missed"),
			Offer:       rapid.IntRange(0, 3).Draw(t, "offer"),
		}
		if m.Missed > 1 {
			m.MissedLast = instant("last missed")
		}
		if m.Due.Before(m.Slot.At) { // a due time is never before the instant
			m.Due = m.Slot.At
		}
		if got, err := core.ParseMessage(m.Header()); err != nil || got != m {
			t.Fatalf("%+v reads %+v, %v", m, got, err)
		}
	})
}

func TestMessageOfferedAgainKeepsItsSlot(t *testing.T) {
	t.Parallel()
	want := job.NewSlot("report", at(t, "2026-11-21T07:00:00Z"))
	for _, c := range []struct {
		header map[string][]string
		offer  int
	}{
		{map[string][]string{core.HeaderSlot: {want.ID()}, core.HeaderMsgID: {want.ID() + "/r2"}}, 2},
		{map[string][]string{core.HeaderMsgID: {want.ID() + "/r2"}}, 2},
		{map[string][]string{core.HeaderMsgID: {want.ID()}}, 0},
		{core.Message{Slot: want, Offer: 1}.Header(), 1},
	} {
		header := c.header
		m, err := core.ParseMessage(header)
		if err != nil || m.Slot != want || !m.Due.Equal(want.At) || m.Offer != c.offer {
			t.Errorf("%v reads %+v, %v", header, m, err)
		}
	}
}

func TestMessageWithInvalidHeadersIsRefused(t *testing.T) {
	t.Parallel()
	good := func() map[string][]string {
		return core.Message{Slot: job.Slot{Job: "a", Token: "x"}, JobRevision: 7, Missed: 2, Due: at(t, "2026-11-21T07:00:00Z")}.Header()
	}
	if _, err := core.ParseMessage(good()); err != nil {
		t.Fatal(err)
	}
	if _, err := core.ParseMessage(nil); !errors.Is(err, job.ErrInvalid) {
		t.Errorf("no headers: %v", err)
	}
	for _, name := range []string{core.HeaderSlot, core.HeaderJobRevision, core.HeaderMissed, core.HeaderDue, core.HeaderMissedLast} {
		h := good()
		h[name] = []string{"nonsense"}
		if _, err := core.ParseMessage(h); !errors.Is(err, job.ErrInvalid) || !strings.Contains(err.Error(), `"nonsense"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A login with permission to publish for one job must not start another job. The server checks only
// the subject.
func TestMessageThatContradictsItsSubjectOrIDIsRefused(t *testing.T) {
	t.Parallel()
	mail := job.Slot{Job: "mail", Token: "x"}
	for subject, scheduler := range map[string]string{"cronce.slot.default.mail": "", "other.slot.q.mail": "", "cronce.timer.due.default.mail": "cronce.timer.set.mail.x"} {
		if err := (core.Message{Slot: mail, Scheduler: scheduler}).CheckSubject(subject); err != nil {
			t.Errorf("%s: %v", subject, err)
		}
	}
	// A timer chooses in its headers on which subject the server publishes, and as which slot.
	planned := job.Slot{Job: "mail", At: time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)}
	for scheduler, slot := range map[string]job.Slot{
		"": mail, "cronce.timer.set.report.x": mail, "cronce.timer.set.mail.y": mail, "other.timer.set.mail.x": mail, "cronce.timer.set.mail.x.1of2": mail,
		"cronce.timer.set.mail.20261121T070000Z": planned,
	} {
		if err := (core.Message{Slot: slot, Scheduler: scheduler}).CheckSubject("cronce.timer.due.default.mail"); !errors.Is(err, exchange.ErrContradicts) {
			t.Errorf("%s scheduled by %q: %v", slot, scheduler, err)
		}
	}
	for _, subject := range []string{
		"cronce.slot.default.payroll", "cronce.timer.due.default.payroll", "cronce.slot.mail.payroll", "cronce.slot.default.x.mail", "cronce.slot.mail",
		"cronce.timer.set.default.mail", "cronce.event.alert.mail", "mail", "",
	} {
		if err := (core.Message{Slot: mail}).CheckSubject(subject); !errors.Is(err, exchange.ErrContradicts) || !errors.Is(err, job.ErrInvalid) {
			t.Errorf("%s: %v", subject, err)
		}
	}
	for _, id := range []string{"payroll:@x", "mail:@y", "mail:@x/r2/r3", "mail:@x/r", "mail:@xx", "/r2", "x"} {
		_, err := core.ParseMessage(map[string][]string{core.HeaderSlot: {"mail:@x"}, core.HeaderMsgID: {id}})
		if !errors.Is(err, exchange.ErrContradicts) || !errors.Is(err, job.ErrInvalid) {
			t.Errorf("message ID %q: %v", id, err)
		}
	}
	if m, err := core.ParseMessage(map[string][]string{core.HeaderSlot: {"mail:@x"}}); err != nil || m.Slot != mail {
		t.Errorf("a timer that has fired, without an ID: %v, %v", m, err)
	}
}

func TestLockThatNamesAnotherJobsSlotIsRefused(t *testing.T) {
	t.Parallel()
	_, err := core.DecodeLock([]byte(`{"v":1,"job":"mail","holders":[{"id":"payroll:@x","at":"2026-11-21T07:00:00Z","since":"2026-11-21T07:00:00Z"}],"nonce":"n"}`))
	if !errors.Is(err, job.ErrInvalid) || !strings.Contains(err.Error(), "payroll:@x") {
		t.Error(err)
	}
}
