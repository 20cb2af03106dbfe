package core_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

var rewriteClaims = flag.Bool("rewrite-claims", false, "write what the claim scenarios give into their files")

// claimBase is the base of the scenario files: times in them are offsets to it.
var claimBase = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

// TestClaimRules runs the scenario files. Each input line is a call of Decide, Complete or Cancel,
// and the line below is the result. To write the results into the files, run the test with
// -rewrite-claims, and review the diff.
func TestClaimRules(t *testing.T) {
	t.Parallel()
	runScenarios(t, "claim", *rewriteClaims, func(t *testing.T) func(io.Writer, string) {
		return func(out io.Writer, line string) { fmt.Fprintf(out, "  %s\n", claimScenario(t, line)) }
	})
}

func claimScenario(t *testing.T, line string) string {
	t.Helper()
	words := strings.Fields(line)
	args := map[string]string{}
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		args[k] = v
	}
	switch words[0] {
	case "decide":
		return decideScenario(t, args)
	case "complete":
		return completeScenario(t, args)
	case "cancel":
		return cancelScenario(t, args)
	}
	t.Fatalf("no such command: %q", line)
	return ""
}

func offset(t *testing.T, args map[string]string, name, fallback string) time.Time {
	t.Helper()
	v, ok := args[name]
	if !ok {
		v = fallback
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatalf("%s=%q: %v", name, v, err)
	}
	return claimBase.Add(d)
}

func number(t *testing.T, args map[string]string, name string, fallback int) int {
	t.Helper()
	v, ok := args[name]
	if !ok {
		return fallback
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatalf("%s=%q: %v", name, v, err)
	}
	return n
}

func has(args map[string]string, name string) bool { _, ok := args[name]; return ok }

func decideScenario(t *testing.T, args map[string]string) string {
	t.Helper()
	d, v := scenario(t, args)
	return answer(v, core.Decide(d, v))
}

// cancelScenario returns the record of a slot that is cancelled or replaced.
func cancelScenario(t *testing.T, args map[string]string) string {
	t.Helper()
	d, v := scenario(t, args)
	req := core.CancelRequest{Replaced: has(args, "replaced"), By: args["by"]}
	return describe(core.Cancel(d, v, req.Cause()))
}

func scenario(t *testing.T, args map[string]string) (core.Delivery, core.View) {
	t.Helper()
	slot := job.NewSlot("report", offset(t, args, "slot", "0s"))
	if token := args["token"]; token != "" {
		slot = job.Slot{Job: "report", Token: token}
	}
	slot.Range = has(args, "last")
	if shard := args["shard"]; shard != "" {
		i, n, _ := strings.Cut(shard, "of")
		number, _ := strconv.Atoi(i)
		shards, _ := strconv.Atoi(n)
		slot = slot.WithShard(number, shards)
	}
	d := core.Delivery{
		Message: core.Message{
			Slot: slot, Due: slot.At, JobRevision: uint64(number(t, args, "revision", 7)),
			Missed: number(t, args, "missed", 0), CaughtUp: has(args, "caught-up"), Chained: has(args, "chained"), Refused: args["refused"],
			Event: has(args, "event"), Offer: number(t, args, "offer", 0),
		},
		Queue: "default", Count: number(t, args, "count", 1), Published: offset(t, args, "published", "5ms"),
	}
	if slot.Range {
		d.MissedLast = offset(t, args, "last", "")
	}
	if has(args, "due") {
		d.Due = offset(t, args, "due", "")
	}
	v := core.View{
		Now: offset(t, args, "now", "10ms"), Self: "A", Horizon: 24 * time.Hour,
		OwnerDead: has(args, "dead"), Handles: !has(args, "no-handler"), Revision: 41,
		Admission: scenarioPlace(t, args),
	}
	if whole, known := args["whole"]; known {
		v.Whole.Known, v.Whole.Revision = true, 40
		if whole != "none" {
			v.Whole.Record = &job.Record{Slot: slot.Whole(), State: job.State(whole), Shards: 8, Error: args["whole-error"]}
		}
	}
	if !has(args, "deleted") {
		v.Entry = scenarioEntry(t, args)
	}
	if state := args["record"]; state != "" {
		v.Record = scenarioRecord(t, args, slot, job.State(state))
	}
	return d, v
}

func answer(v core.View, decision core.Decision) string {
	switch decision.Action {
	case core.Ack:
		return "ack"
	case core.Later:
		return fmt.Sprintf("later %v", decision.Delay)
	case core.Prove:
		return "prove " + v.Record.Node
	case core.ReadWhole:
		return "learn whole"
	case core.WriteWhole:
		return fmt.Sprintf("write whole shards=%d %s", decision.Record.Shards, describe(decision.Record))
	case core.ConcludeWhole:
		return "conclude"
	case core.Enter:
		return "enter"
	case core.Stand:
		return "stand " + describe(decision.Record)
	case core.Start:
		return "start " + describe(decision.Record)
	default:
		return "end " + describe(decision.Record)
	}
}

func scenarioPlace(t *testing.T, args map[string]string) core.Admission {
	t.Helper()
	kinds := map[string]core.AdmissionKind{
		"": core.AdmissionUnasked, "held": core.AdmissionGranted, "waits": core.AdmissionQueued,
		"barred": core.AdmissionSkipped, "displaced": core.AdmissionReplaced,
	}
	kind, known := kinds[args["place"]]
	if !known {
		t.Fatalf("no such place: %q", args["place"])
	}
	return core.Admission{Kind: kind, InWay: job.NewSlot("report", claimBase.Add(-time.Hour))}
}

func scenarioEntry(t *testing.T, args map[string]string) *plans.Entry {
	t.Helper()
	schedule := map[string]string{"": "0 * * * *", "hourly": "0 * * * *", "half": "30 * * * *"}[args["plan"]]
	e := &plans.Entry{Revision: 7, Time: offset(t, args, "since", "-100h")}
	e.Job = job.Job{Name: "report", Schedule: schedule, Retry: job.Retry{Attempts: number(t, args, "attempts", 0)}, Overlap: job.OverlapAllow}
	if has(args, "on") {
		e.Job.Schedule, e.Job.On = "", job.On{Stream: "ORDERS", Subject: "orders.paid"}
	}
	if overlap, ok := args["overlap"]; ok {
		e.Job.Overlap = job.Overlap(overlap)
	}
	e.Job.Shards = number(t, args, "plan-shards", 0)
	e.Job.Concurrency = number(t, args, "concurrency", 0)
	e.Job.Deadline = offset(t, args, "deadline", "0s").Sub(claimBase)
	if has(args, "paused") {
		e.Revision = 9
		e.Pauses = []plans.Window{{From: offset(t, args, "paused", "")}}
		if e.Paused = !has(args, "resumed"); !e.Paused {
			e.Pauses[0].To = offset(t, args, "resumed", "")
		}
	}
	if past := args["past"]; past != "" {
		e.Revision = 8
		e.Past = []plans.PastPlan{{
			Plan: job.Job{Name: "report", Schedule: map[string]string{"hourly": "0 * * * *", "half": "30 * * * *"}[past]}.Plan(),
			From: claimBase.Add(-100 * time.Hour), To: e.Time,
		}}
	}
	return e
}

func scenarioRecord(t *testing.T, args map[string]string, slot job.Slot, state job.State) *job.Record {
	t.Helper()
	node, ok := args["node"]
	if !ok {
		node = "B"
	}
	attempt := number(t, args, "attempt", 1)
	r := &job.Record{
		Slot: slot, Queue: "default", State: state, Attempt: attempt, MaxAttempts: number(t, args, "max", 3), Node: node,
		Shards:   number(t, args, "record-shards", 0),
		Attempts: []job.Attempt{{Number: attempt, Node: node, Started: claimBase}}, Published: claimBase,
	}
	if has(args, "unclaimed") {
		r.Attempts = nil
	}
	if has(args, "start-by") {
		r.StartBy = offset(t, args, "start-by", "")
	}
	if state == job.Retrying {
		r.RetryAt, r.Error = offset(t, args, "retry", "1s"), "boom"
		r.Attempts[0].Error = r.Error
	}
	return r
}

func completeScenario(t *testing.T, args map[string]string) string {
	t.Helper()
	r := *scenarioRecord(t, args, job.NewSlot("report", offset(t, args, "slot", "0s")), job.Running)
	res := core.Result{Stopped: has(args, "stopped"), Cancelled: has(args, "cancelled"), Backoff: 2 * time.Second}
	switch kind := args["err"]; kind {
	case "":
	case "permanent":
		res.Err = job.Permanent(errors.New("boom"))
	case "after":
		res.Err = job.RetryAfter(time.Minute, errors.New("boom"))
	default:
		res.Err = errors.New(kind)
	}
	return describe(core.Complete(r, 41, offset(t, args, "now", "3s"), 24*time.Hour, res))
}

func describe(r job.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s attempt=%d node=%s", r.State, r.Attempt, r.Node)
	if !r.RetryAt.IsZero() {
		fmt.Fprintf(&b, " retry=%v", r.RetryAt.Sub(claimBase))
	}
	if r.Error != "" {
		fmt.Fprintf(&b, " error=%q", r.Error)
	}
	for _, a := range r.Attempts {
		fmt.Fprintf(&b, " [%d %s", a.Number, a.Node)
		if a.Fence != 0 {
			fmt.Fprintf(&b, " fence=%d", a.Fence)
		}
		if a.Error != "" {
			fmt.Fprintf(&b, " %q", a.Error)
		}
		b.WriteString("]")
	}
	return b.String()
}
