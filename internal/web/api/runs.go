package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/api/row"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/web/problem"
)

// Order is the body of an order for one run.
type Order struct {
	Payload json.RawMessage `json:"payload,omitempty" doc:"any JSON for the handler; left out: the job's own"`
	At      time.Time       `json:"at,omitzero" doc:"when to run; left out: at once"`
}

type triggerIn struct {
	ofJob
	Key  string `header:"Idempotency-Key" empty:"error" doc:"names the run: the same key again is the same run. Left out: each request is a new run"`
	Body Order  `body:"" doc:"the payload and the time; may be left out"`
}

// Range is the body of a backfill.
type Range struct {
	From time.Time `json:"from" doc:"the beginning of the range"`
	To   time.Time `json:"to,omitzero" doc:"the end of the range, exclusive; left out: now"`
	Rate *int      `json:"rate,omitempty" doc:"messages per second, 1 to 10,000; left out: 100"`
	Clip bool      `json:"clip,omitempty" doc:"leave out the slots that are older than the horizon; otherwise they are an error, and nothing is published"`
}

type backfillIn struct {
	ofJob
	Body Range `body:"" required:"true" doc:"the range, as an object with from and to"`
}

// Filled is the progress of a backfill.
type Filled struct {
	row.Backfill
	Complete bool `json:"complete" doc:"false: the request ran out of time. Send it again for the rest"`
}

func runOperations() []operation {
	return []operation{
		newOperation("triggerJob", http.MethodPost, "/jobs/{job}:trigger", "Run a job once, outside its schedule: now or later", trigger).
			says("All orders with the same job and key are one run, for as long as the ledger keeps its record. The first decides the time and the payload.").
			returns(answer{status: http.StatusCreated, what: "A new run"}, answer{status: http.StatusOK, what: "The same run as before"}).
			fails(fault.KeyReused).
			curl(`-X POST -H 'Idempotency-Key: invoice-7' -H 'Content-Type: application/json' -d '{"payload": {"invoice": 7}}'`),
		newOperation("backfillJob", http.MethodPost, "/jobs/{job}:backfill", "Run the slots of a range of the past that have no outcome", backfill).
			returns(answer{status: http.StatusOK, what: "All slots of the range are published, or had a record"},
				answer{status: http.StatusAccepted, what: "Some are not published yet: send the same request again for the rest"}).
			fails(fault.Conflict).
			curl(`-X POST -H 'Content-Type: application/json' -d '{"from": "2026-11-21T00:00:00Z", "to": "2026-11-21T08:00:00Z", "clip": true}'`),
	}
}

func trigger(ctx context.Context, c *call, in triggerIn) (row.Trigger, error) {
	o := client.TriggerOptions{Key: in.Key, At: in.Body.At, Payload: in.Body.Payload}
	err := cmp.Or(
		blame("Idempotency-Key", client.TriggerOptions{Key: o.Key}.Validate()),
		blame("at", client.TriggerOptions{At: o.At}.Validate()),
		blame("payload", o.Validate()),
	)
	if err != nil {
		return row.Trigger{}, err
	}
	run, err := c.Trigger(ctx, in.Job, o)
	if in.Key == "" && fault.Of(err) == fault.Unknown && c.request.Err() == nil {
		d := problem.Of(err, false)
		d.Title = "Not answered in time, so the result is unknown: the same request again would be another run"
		d.Detail += ": the job may have been triggered: list its slots, or send an Idempotency-Key with each request"
		return row.Trigger{}, d
	}
	if err != nil {
		return row.Trigger{}, err
	}
	if run.New {
		c.status = http.StatusCreated
		return row.Triggered(run), nil
	}
	if len(in.Body.Payload) > 0 {
		has, err := run.Payload(ctx)
		if err != nil {
			return row.Trigger{}, err
		}
		if !codec.SameJSON(has, in.Body.Payload) {
			d := problem.New(fault.KeyReused, fmt.Sprintf("the run %q has another payload: choose another Idempotency-Key for another run", run.ID()))
			d.Field = "Idempotency-Key"
			return row.Trigger{}, d
		}
	}
	return row.Triggered(run), nil
}

func backfill(ctx context.Context, c *call, in backfillIn) (Filled, error) {
	if in.Body.From.IsZero() {
		return Filled{}, wrong("from", `member "from" is missing: want a time like 2026-11-21T00:00:00Z`)
	}
	ctx, cancel := context.WithTimeout(ctx, c.api.cfg.Patience/2)
	defer cancel()
	rate, err := row.Rate(in.Body.Rate)
	if err != nil {
		return Filled{}, blame("rate", err)
	}
	b := client.BackfillOptions{From: in.Body.From, To: in.Body.To, Rate: rate, Clip: in.Body.Clip}
	if err := cmp.Or(blame("to", client.BackfillOptions{From: b.From, To: b.To}.Validate()), blame("rate", b.Validate())); err != nil {
		return Filled{}, err
	}
	done, err := c.Backfill(ctx, in.Job, b, nil)
	switch {
	case !done.From.IsZero():
		err = blame("job", err) // the range was right
	case b.To.IsZero():
		err = blame("from", err)
	default:
		err = blame("to", err)
	}
	out := Filled{row.Backfill{Job: in.Job, Backfilled: done}, err == nil}
	if ctx.Err() != nil && done.Slots > 0 {
		c.status, err = http.StatusAccepted, nil
	}
	return out, err
}
