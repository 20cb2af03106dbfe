package core_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// serverLimit is the default payload limit of a nats-server, less a reserve for headers.
const serverLimit = 1<<20 - 4<<10

// The largest record has the longest history, and the largest payload, result, outputs and errors, all of
// characters that JSON escapes. It must fit in a message, or its slot could never complete.
func TestTheLargestRecordFitsInAMessage(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	entry := &plans.Entry{Definition: plans.Definition{Job: job.Job{Name: "j", Schedule: "* * * * *", Retry: job.Retry{Attempts: 1000}, Output: job.MaxOutput, Overlap: job.OverlapAllow}.WithDefaults()}, Revision: 1}
	d := core.Delivery{Message: core.Message{Slot: job.Slot{Job: "j", Token: strings.Repeat("\u00e9", 64)}, JobRevision: 1}, Queue: "default", Published: now, Payload: bytes.Repeat([]byte{0}, job.MaxPayload)}
	v := core.View{Now: now, Self: strings.Repeat("n", 64), Horizon: 24 * time.Hour, Entry: entry, Handles: true}
	for _, text := range []string{"\x00", "\"", "\u2028", "\xff"} {
		v.Record, v.Revision = nil, 0
		for attempt := range 205 {
			step := core.Decide(d, v)
			if step.Action != core.Start {
				t.Fatalf("attempt %d: %+v", attempt, step.Action)
			}
			r := core.Complete(step.Record, uint64(attempt+1), now, v.Horizon, core.Result{Err: errors.New(strings.Repeat(text, 10_000)), Output: strings.Repeat(text, job.MaxOutput/len(text))})
			r.Result = json.RawMessage(`"` + strings.Repeat("x", job.MaxResult-2) + `"`)
			data, err := r.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if len(data) > serverLimit {
				t.Fatalf("after %d attempts with errors of %q the record has %d bytes", attempt+1, text, len(data))
			}
			r.RetryAt = now
			v.Record, v.Revision = &r, uint64(attempt+1)
		}
	}
}

func TestASlotWithATooLargePayloadIsCancelled(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	d := core.Delivery{Message: core.Message{Slot: job.Slot{Job: "j", Token: "t"}}, Queue: "default", Published: now, Payload: make([]byte, job.MaxPayload+1)}
	for name, entry := range map[string]*plans.Entry{"no job": nil, "job": {Definition: plans.Definition{Job: job.Job{Name: "j"}.WithDefaults()}}} {
		step := core.Decide(d, core.View{Now: now, Self: "n", Horizon: time.Hour, Entry: entry, Handles: true})
		if step.Action != core.End || step.Record.State != job.Cancelled || len(step.Record.Payload) > 0 || !strings.Contains(step.Record.Error, "payload") {
			t.Errorf("%s: %v %s %q with %d bytes of payload", name, step.Action, step.Record.State, step.Record.Error, len(step.Record.Payload))
		}
	}
}

// A login with permission to publish slots can set any headers.
func TestHostileHeadersAreBounded(t *testing.T) {
	t.Parallel()
	for _, hostile := range []string{"\x00\x1b[2J", strings.Repeat("n", 60_000), "a\r\nX-Other: b", "\xff\xfe", "$KV.>", "../../etc/passwd", `"}`} {
		m, err := core.ParseMessage(map[string][]string{core.HeaderMsgID: {"report:@k"}, core.HeaderNode: {hostile}})
		if err != nil || len(m.Node) > 256 {
			t.Errorf("a node %.20q becomes %.20q of %d bytes, %v", hostile, m.Node, len(m.Node), err)
		}
		for _, id := range []string{hostile + ":2026-11-21T07:00:00Z", "report:" + hostile, "report:@" + hostile} {
			m, err := core.ParseMessage(map[string][]string{core.HeaderMsgID: {id}})
			if err != nil {
				if len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\r\n\x00\x1b") {
					t.Errorf("the error on %.30q is %.60q...", id, err)
				}
				continue
			}
			for token := range strings.SplitSeq(m.Slot.Key(), ".") {
				if token == "" || strings.ContainsAny(token, "*> \r\n\x00") {
					t.Errorf("%.30q has the key %q", id, m.Slot.Key())
				}
			}
		}
		if _, err := job.ParseSchedule("j", job.Plan{Schedule: "* * * * *", Timezone: hostile}); err == nil {
			t.Errorf("the time zone %.20q is taken", hostile)
		}
	}
}
