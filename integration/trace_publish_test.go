//go:build long && unix

package integration

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/api/row"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

// callers returns the numbered traceparent of another application.
func callers(n int) (traceparent, trace, parent string) {
	trace, parent = fmt.Sprintf("4bf92f3577b34da6a3ce929d0e0e47%02d", n), fmt.Sprintf("00f067aa0ba902%02d", n)
	return "00-" + trace + "-" + parent + "-01", trace, parent
}

// A plan, a command, a request, a message, or the outcome of an earlier job publishes a slot. The publication and the
// attempts of a slot are always one trace: the trace of the caller, or if it has none, the slot's own.
func TestTraceOfASlotIsOneFromAnyPublisher(t *testing.T) {
	t.Parallel()
	c, url := newCollector(t)
	s := newServedSite(t)
	s.environment = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + url, "OTEL_BSP_SCHEDULE_DELAY=100"}
	if _, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	paused := soon()
	file := s.jobs(`echo "$CRONCE_SLOT_ID $TRACEPARENT" >>touched; [ $CRONCE_JOB != broken ] || [ -e mended ]`,
		`name: extract, schedule: "@yearly"`, `name: load, after: [extract]`, `name: paused, `+at(paused),
		`name: broken, schedule: "@yearly", retry: {attempts: 1}`, `name: order, "on": {stream: ORDERS, subject: orders.new}`)
	w := s.worker("w1", file)
	w.says("node is up")
	s.command(0, "job", "pause", "paused")
	w.says("taking messages: each one starts the job")

	// want is, by slot, the trace and the parent of its publication.
	type origin struct{ trace, parent string }
	want := map[string]origin{}
	of := func(slot job.Slot) string { id := slot.TraceID("cronce"); return hex.EncodeToString(id[:]) }
	run := func(job_, key string) job.Slot { return job.Slot{Job: job_, Token: key} }
	own := func(slot job.Slot) { want[slot.ID()] = origin{of(slot), ""} }

	s.command(0, "job", "trigger", "extract", "--key", "own")
	own(run("extract", "own"))
	own(run("load", "own")) // load comes after extract
	s.command(0, "job", "trigger", "extract", "--key", "timer", "--at", time.Now().Add(2*time.Second).UTC().Format(time.RFC3339))
	own(run("extract", "timer"))
	own(run("load", "timer"))

	within := *s
	parent, trace, span := callers(1)
	within.environment = append([]string{"TRACEPARENT=" + parent}, s.environment...)
	within.command(0, "job", "trigger", "extract", "--key", "script")
	want[run("extract", "script").ID()] = origin{trace, span}
	own(run("load", "script"))

	parent, trace, span = callers(2)
	request := &nats.Msg{Subject: "cronce.api.job.trigger", Data: []byte(`{"job":"extract","key":"api"}`), Header: nats.Header{"Traceparent": {parent}}}
	answer, err := s.nc.RequestMsg(request, natstest.Patience)
	var triggered row.Trigger
	if err != nil || json.Unmarshal(answer.Data, &triggered) != nil || !triggered.New {
		t.Fatalf("%v: %+v", err, answer)
	}
	want[triggered.ID] = origin{trace, span}

	parent, trace, span = callers(3)
	for id, h := range map[string]nats.Header{"o1": {"Traceparent": {parent}}, "o2": {"traceparent": {"garbage"}}, "o3": nil} {
		m := &nats.Msg{Subject: "orders.new", Header: h, Data: []byte(`{}`)}
		if _, err := s.js.PublishMsg(t.Context(), m, jetstream.WithMsgID(id)); err != nil {
			t.Fatal(err)
		}
	}
	want[run("order", "o1").ID()] = origin{trace, span}
	own(run("order", "o2"))
	own(run("order", "o3"))

	s.command(0, "job", "trigger", "broken", "--key", "again")
	broken := run("broken", "again")
	eventually(t, "a failure", func() bool { return s.states("broken")["@again"] == "failed" })
	s.write("mended", "")
	s.command(0, "slot", "retry", broken.ID())

	eventually(t, "the instant of the paused slot to pass", func() bool { return time.Now().After(paused.Add(time.Second)) })
	s.command(0, "job", "backfill", "paused", "--from", paused.UTC().Format(time.RFC3339), "--to", paused.Add(time.Second).UTC().Format(time.RFC3339))
	own(job.NewSlot("paused", paused))

	eventually(t, "all to succeed", func() bool {
		done := map[string]bool{}
		for _, r := range s.slots("--state", "succeeded") {
			done[r.ID] = true
		}
		for id := range want {
			if !done[id] {
				return false
			}
		}
		return done[broken.ID()]
	})
	term(w)                    // at its end, the worker exports the remaining spans
	got := map[string]string{} // the TRACEPARENT of each action
	for _, line := range s.touched() {
		id, parent, _ := strings.Cut(line, " ")
		got[id] = parent
	}
	// The trigger published the slot, and the retry published it again.
	if p := c.of(broken.ID())["publish broken"]; len(p) != 2 || p[0].Trace != of(broken) || p[1].Trace != p[0].Trace {
		t.Errorf("published in %+v", p)
	}
	for id, o := range want {
		found := c.of(id)
		name, _, _ := strings.Cut(id, ":")
		published := found["publish "+name]
		if len(published) != 1 || published[0].Trace != o.trace || published[0].Parent != o.parent {
			t.Errorf("%s: published in %+v, want %+v", id, published, o)
			continue
		}
		for _, step := range []string{"claim", "run", "complete"} {
			steps := found[step+" "+name]
			if len(steps) != 1 || steps[0].Trace != o.trace || steps[0].Parent != published[0].ID {
				t.Errorf("%s: %s in %+v, which is no child of %+v", id, step, steps, published[0])
			} else if handed := "00-" + o.trace + "-" + steps[0].ID + "-01"; step == "run" && got[id] != handed {
				t.Errorf("%s: the action got TRACEPARENT %q, want %s", id, got[id], handed)
			}
		}
	}
}
