package verify_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

func TestProblems(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit func(*facts)
		want []string // the beginning of each problem
	}{
		"a perfect history": {func(*facts) {}, nil},
		"a record is gone": {
			func(f *facts) { f.lose(9) },
			[]string{"offer missing report:2026-11-21T09:00:00Z neither a record nor a message"},
		},
		"a record is gone that was told of": {
			func(f *facts) { f.lose(9); f.events = []job.Event{{Kind: job.EventMissed, ID: slot(9).ID()}} },
			[]string{"offer missing report:2026-11-21T09:00:00Z neither a record nor a message, although an event reported its outcome"},
		},
		"it waits": {
			func(f *facts) { f.lose(12); f.wait(slot(12), noon) }, nil,
		},
		"it was published late and waits": {
			func(f *facts) { f.lose(9); f.wait(slot(9), noon) }, nil,
		},
		"it waits for too long": {
			func(f *facts) { f.lose(9); f.wait(slot(9), slot(9).At) },
			[]string{"leave no_outcome report:2026-11-21T09:00:00Z it has been waiting for more than 2m0s, and no worker takes it: its message waits"},
		},
		"its ack was lost": {
			func(f *facts) { f.wait(slot(9), slot(9).At) }, nil,
		},
		"older than the horizon": {
			func(f *facts) { f.cfg.Settings.Horizon = 2 * time.Hour; f.lose(9); f.lose(11) },
			[]string{
				"leave missing report:2026-11-21T09:00:00Z neither a record nor a message: older than the horizon of 2h0m0s",
				"offer missing report:2026-11-21T11:00:00Z neither a record nor a message",
			},
		},
		"no producer": {
			func(f *facts) { f.cfg.Watermark.Time = ago(time.Minute); f.lose(12) },
			[]string{"leave missing report:2026-11-21T12:00:00Z not published: the watermark has not passed it: the next producer"},
		},
		"no producer that knows the plan": {
			func(f *facts) { f.cfg.Watermark.Revision = 4; f.lose(12) },
			[]string{"leave missing report:2026-11-21T12:00:00Z not published"},
		},
		"only the entry is newer than the watermark": {
			func(f *facts) {
				f.cfg.Watermark.Revision, f.cfg.Watermark.RegistryTime = 4, ago(24*time.Hour)
				f.lose(12)
			},
			[]string{"offer missing report:2026-11-21T12:00:00Z neither"},
		},
		"a live worker runs it": {
			func(f *facts) { f.replace(unsettled(slot(9), job.Running, "live")) }, nil,
		},
		"a live worker runs it, past its timeout": {
			func(f *facts) {
				f.entries[0].Job.Timeout = time.Hour
				f.replace(unsettled(slot(9), job.Running, "live"))
				f.replace(unsettled(slot(12), job.Running, "live"))
			},
			[]string{"leave no_outcome report:2026-11-21T09:00:00Z it has been running for 3h1m0s, and its timeout is 1h0m0s"},
		},
		"its worker is dead, its message gone": {
			func(f *facts) {
				f.replace(unsettled(slot(9), job.Running, "silent"))
				f.replace(unsettled(slot(10), job.Running, "fenced"))
				f.replace(unsettled(slot(11), job.Running, "collected"))
			},
			[]string{
				"offer no_outcome report:2026-11-21T09:00:00Z its worker silent is dead, and its message is gone",
				"offer no_outcome report:2026-11-21T10:00:00Z its worker fenced is dead, and its message is gone",
				"offer no_outcome report:2026-11-21T11:00:00Z its worker collected is dead, and its message is gone",
			},
		},
		"its worker is dead, and it was just offered again": {
			func(f *facts) {
				for hour, state := range map[int]job.State{9: job.Running, 10: job.Retrying} {
					f.replace(unsettled(slot(hour), state, "collected"))
					f.wait(slot(hour), slot(hour).At)
					f.waiting = append(f.waiting, core.Message{Slot: slot(hour), Due: noon, Offer: 1})
					f.late[slot(hour)] = noon
				}
			}, nil,
		},
		"its worker is dead, its message waits": {
			func(f *facts) {
				for hour, node := range map[int]string{9: "silent", 10: "fenced", 12: "collected"} {
					f.replace(unsettled(slot(hour), job.Running, node))
					f.wait(slot(hour), slot(hour).At)
				}
			},
			[]string{"leave no_outcome report:2026-11-21T09:00:00Z its worker silent is dead, and no worker has taken it over: its message waits"},
		},
		"it is to be retried": {
			func(f *facts) {
				f.replace(unsettled(slot(12), job.Retrying, ""))
				f.wait(slot(12), noon)
			}, nil,
		},
		"its retry is overdue": {
			func(f *facts) {
				f.replace(unsettled(slot(9), job.Retrying, ""))
				f.wait(slot(9), slot(9).At)
			},
			[]string{"leave no_outcome report:2026-11-21T09:00:00Z its next attempt was due at 2026-11-21T09:01:00Z, and no worker makes it: its message waits"},
		},
		"it is to be retried, its message is gone": {
			func(f *facts) { f.replace(unsettled(slot(12), job.Retrying, "")) },
			[]string{"offer no_outcome report:2026-11-21T12:00:00Z it is retrying, and its message is gone"},
		},
		"a range of missed slots": {
			func(f *facts) {
				f.lose(8)
				f.lose(9)
				first := slot(7)
				first.Range = true
				f.records = append(f.records, job.Record{Slot: first, State: job.Missed, Count: 3, Last: slot(9).At})
			}, nil,
		},
		"a range that waits": {
			func(f *facts) {
				f.lose(8)
				first := slot(7)
				first.Range = true
				f.waiting = append(f.waiting, core.Message{Slot: first, Due: first.At, Missed: 2, MissedLast: slot(8).At})
			}, nil,
		},
		"attempts overlap": {
			func(f *facts) {
				r := done(slot(9))
				r.Attempts[0].Error = "worker died"
				r.Attempts = append(r.Attempts, job.Attempt{Number: 2, Started: r.Attempts[0].Started.Add(-time.Minute)})
				f.replace(r)
			},
			[]string{"leave doubled report:2026-11-21T09:00:00Z attempt 2 was started 1m1s before attempt 1 had ended: a second run"},
		},
		"an attempt after a success": {
			func(f *facts) {
				r := done(slot(9))
				r.Attempts = append(r.Attempts, job.Attempt{Number: 2, Started: r.Attempts[0].Finished.Add(time.Minute)})
				f.replace(r)
			},
			[]string{"leave doubled report:2026-11-21T09:00:00Z attempt 2 was started after attempt 1 had succeeded"},
		},
		"an orderly takeover": {
			func(f *facts) {
				r := done(slot(9))
				r.Attempts[0].Error = "worker died"
				r.Attempts = append(r.Attempts, job.Attempt{Number: 2, Started: r.Attempts[0].Finished.Add(-time.Millisecond)})
				f.replace(r)
			}, nil,
		},
		"an outcome was told beside the recorded one": {
			func(f *facts) { f.events = []job.Event{{Kind: job.EventFailed, ID: slot(9).ID()}} },
			[]string{"leave doubled report:2026-11-21T09:00:00Z it succeeded, and an event reported another outcome before"},
		},
		"two outcomes were told": {
			func(f *facts) {
				f.events = []job.Event{{Kind: job.EventFailed, ID: slot(9).ID()}, {Kind: job.EventExpired, ID: slot(9).ID()}}
				r := done(slot(9))
				r.State = job.Expired
				f.replace(r)
			},
			[]string{"leave doubled report:2026-11-21T09:00:00Z events reported two outcomes, the later one: expired"},
		},
		"an outcome was told, and it is the recorded one": {
			func(f *facts) {
				f.events = []job.Event{{Kind: job.EventTakeover, ID: slot(9).ID()}, {Kind: job.EventFailed, ID: slot(9).ID()}}
				r := done(slot(9))
				r.State = job.Failed
				f.replace(r)
			}, nil,
		},
		"reopened between two outcomes": {
			func(f *facts) {
				triggered := done(job.Slot{Job: "report", Token: "x"})
				triggered.Published = slot(9).At
				f.lose(9)
				for _, r := range []job.Record{done(slot(9)), triggered} {
					f.events = append(f.events, job.Event{Kind: job.EventFailed, ID: r.Slot.ID()}, job.Event{Kind: job.EventAlert, ID: r.Slot.ID(), Reopened: true})
					r.Attempts = append(r.Attempts, job.Attempt{Number: 2, Started: r.Attempts[0].Finished.Add(time.Minute)})
					f.records = append(f.records, r)
				}
			}, nil,
		},
		"a triggered run without an outcome": {
			func(f *facts) {
				r := unsettled(job.Slot{Job: "report", Token: "x"}, job.Retrying, "")
				r.Published = slot(9).At
				f.records = append(f.records, r)
			},
			[]string{"offer no_outcome report:@x it is retrying, and its message is gone"},
		},
		"a triggered run that no worker takes": {
			func(f *facts) { f.wait(job.Slot{Job: "report", Token: "x"}, slot(9).At) },
			[]string{"leave no_outcome report:@x it has been waiting"},
		},
		"a slot of no plan without an outcome": {
			func(f *facts) {
				f.records = append(f.records, unsettled(job.NewSlot("report", slot(9).At.Add(time.Minute)), job.Retrying, ""))
			},
			[]string{"offer no_outcome report:2026-11-21T09:01:00Z it is retrying, and its message is gone"},
		},
		"a job that was deleted": {
			func(f *facts) {
				f.entries = nil
				f.replace(unsettled(slot(9), job.Retrying, ""))
			},
			[]string{"leave no_outcome report:2026-11-21T09:00:00Z it is retrying, and its message is gone: its job is not in the registry"},
		},
		"another job": {
			func(f *facts) {
				f.cfg.Jobs = []string{"other"}
				f.lose(9)
				f.wait(job.NewSlot("report", slot(9).At.Add(time.Minute)), slot(9).At)
			}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := perfect()
			c.edit(&f)
			got := found(f.check())
			if len(got) != len(c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for i, want := range c.want {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("got %q, want %q", got[i], want)
				}
			}
		})
	}
}
