package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/api/row"
	"github.com/cronce-io/cronce/internal/api/schema"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

// order is one endpoint, which calls an operation of package client.
type order struct {
	name, what string // what describes the endpoint
	in, out    string // the JSON schemas of the request and the answer
	run        func(ctx context.Context, s *server, r micro.Request) (any, error)
}

// by is the author of a request.
type by struct {
	By string `json:"by,omitempty" doc:"the author of the request, as records and events show it"`
}

func (b by) author() string { return b.By }

// authored is a request with an author.
type authored interface{ author() string }

// newOrder returns an order that f carries out.
func newOrder[In authored, Out any](name, what string, f func(context.Context, *client.Client, In) (Out, error)) order {
	return newJobOrder(name, what, func(ctx context.Context, c *client.Client, _ string, in In) (Out, error) { return f(ctx, c, in) })
}

// newJobOrder returns an order whose subject ends with what it is about, which f gets.
func newJobOrder[In authored, Out any](name, what string, f func(ctx context.Context, c *client.Client, about string, in In) (Out, error)) order {
	return order{name, what, schema.Text[In](), schema.Text[Out](), func(ctx context.Context, s *server, r micro.Request) (any, error) {
		var in In
		if len(bytes.TrimSpace(r.Data())) > 0 { // no data means no members
			if _, err := schema.Decode(r.Data(), &in); err != nil {
				return nil, fmt.Errorf("%w request: %w", job.ErrInvalid, err)
			}
		}
		author := cmp.Or(in.author(), "api")
		if err := job.ValidateToken(author); err != nil {
			return nil, fmt.Errorf("by: %w", err)
		}
		c := client.Attach(attach.Of(s.conn, s.store, attach.Options{Operator: author, Now: s.now, Logger: s.log}))
		return f(ctx, c, r.Subject()[strings.LastIndex(r.Subject(), ".")+1:], in)
	}}
}

// JobRequest is a request about one job.
type JobRequest struct {
	Job string `json:"job"`
	by
}

// Edited is the result of an order that edits a job.
type Edited struct {
	Job      string `json:"job"`
	Changed  bool   `json:"changed" doc:"false: nothing had to be changed"`
	Revision uint64 `json:"revision,omitempty"`
	Missed   int    `json:"missed,omitempty" doc:"slots that fell due during the pause"`
	Runs     int    `json:"runs,omitempty" doc:"how many of the missed slots the catch-up policy runs"`
}

// TriggerRequest orders one run.
type TriggerRequest struct {
	Job     string          `json:"job"`
	Key     string          `json:"key,omitempty" doc:"names the run: the same key again is the same run"`
	At      time.Time       `json:"at,omitzero" doc:"when to run; left out: at once"`
	Payload json.RawMessage `json:"payload,omitempty" doc:"any JSON for the handler; left out: the job's own"`
	by
}

// LaterRequest orders one run of the job that its subject names.
type LaterRequest struct {
	Key     string          `json:"key" doc:"names the run: the same key again is the same run"`
	At      time.Time       `json:"at" doc:"when to run"`
	Payload json.RawMessage `json:"payload,omitempty" doc:"any JSON for the handler; left out: the job's own"`
	by
}

// ApplyRequest creates and changes jobs.
type ApplyRequest struct {
	File     json.RawMessage `json:"file" doc:"a job file, as JSON; actions are ignored"`
	Prune    bool            `json:"prune,omitempty" doc:"true: also remove the jobs that the file does not have"`
	DryRun   bool            `json:"dry_run,omitempty" doc:"true: change nothing, and return what would change"`
	Revision *uint64         `json:"revision,omitempty" doc:"change no job that was written after this revision"`
	by
}

// Applied is the result of an ApplyRequest.
type Applied struct {
	Jobs []AppliedJob `json:"jobs"`
}

// AppliedJob is the result for one job.
type AppliedJob struct {
	Job      string        `json:"job"`
	Action   client.Action `json:"action"`
	Revision uint64        `json:"revision,omitempty"`
	Handlers int           `json:"handlers" doc:"live nodes that would run the job"`
	Error    string        `json:"error,omitempty"`
}

// JobDetails is what is known about a job.
type JobDetails struct {
	Definition json.RawMessage `json:"definition,omitempty" doc:"the stored value, as docs/protocol.md describes it"`
	Revision   uint64          `json:"revision"`
	Broken     string          `json:"broken,omitempty" doc:"why the stored definition cannot be read"`
	Handlers   []string        `json:"handlers,omitempty" doc:"the live nodes that would run the job"`
	Next       []time.Time     `json:"next,omitempty" doc:"the next slots"`
}

// BackfillRequest orders the slots of a range.
type BackfillRequest struct {
	Job  string    `json:"job"`
	From time.Time `json:"from" doc:"the beginning of the range"`
	To   time.Time `json:"to,omitzero" doc:"the end of the range, exclusive; left out: now"`
	Rate *int      `json:"rate,omitempty" doc:"messages per second, 1 to 10,000; left out: 100"`
	Clip bool      `json:"clip,omitempty" doc:"leave out the slots that are older than the horizon; otherwise they are an error, and nothing is published"`
	by
}

// Backfilled counts the slots of the range.
type Backfilled struct {
	Slots     int  `json:"slots" doc:"how many slots the job has in the range"`
	Known     int  `json:"known" doc:"slots that had a record"`
	Waiting   int  `json:"waiting" doc:"slots that waited already"`
	TooOld    int  `json:"too_old" doc:"slots that are older than the horizon, and were left out"`
	Published int  `json:"published"`
	Complete  bool `json:"complete" doc:"false: the time of the request was over; send it again for the rest"`
}

func orders() []order {
	edited := func(e client.Edited, err error) (Edited, error) {
		return Edited{Job: e.Job.Name, Changed: e.Changed, Revision: e.Revision}, err
	}
	return slices.Concat([]order{
		newOrder("job.show", "Return all that is known about a job.", show),
		newOrder("job.apply", "Create and update jobs from a file.", apply),
		newOrder("job.rm", "Remove a job.", func(ctx context.Context, c *client.Client, in JobRequest) (Edited, error) {
			return Edited{Job: in.Job, Changed: true}, c.Remove(ctx, in.Job, client.RemoveOptions{})
		}),
		newOrder("job.pause", "Pause a job: none of its slots is published until it is resumed.", func(ctx context.Context, c *client.Client, in JobRequest) (Edited, error) {
			return edited(c.Pause(ctx, in.Job))
		}),
		newOrder("job.resume", "End the pause of a job.", resume),
		newOrder("job.release", "Let files and code change a job again.", func(ctx context.Context, c *client.Client, in JobRequest) (Edited, error) {
			return edited(c.Release(ctx, in.Job))
		}),
		newOrder("job.trigger", "Run a job once, outside its schedule: now or later.", trigger),
		newOrder("job.backfill", "Run the slots of a range of the past that have no outcome.", backfill),
	}, slotOrders(), listOrders())
}

// laterOrder is the order of a login that may not set timers. Its key is required, so that a repeated
// request is the same run.
func laterOrder() order {
	return newJobOrder("later.*", "Run a job once, at a later time.", func(ctx context.Context, c *client.Client, name string, in LaterRequest) (row.Trigger, error) {
		if in.Key == "" || in.At.IsZero() {
			return row.Trigger{}, fmt.Errorf("%w request: it needs a key and a time", job.ErrInvalid)
		}
		return trigger(ctx, c, TriggerRequest{Job: name, Key: in.Key, At: in.At, Payload: in.Payload, by: in.by})
	})
}

func trigger(ctx context.Context, c *client.Client, in TriggerRequest) (row.Trigger, error) {
	t, err := c.Trigger(ctx, in.Job, client.TriggerOptions{Key: in.Key, At: in.At, Payload: in.Payload})
	if in.Key == "" && fault.Of(err) == fault.Unknown {
		err = fmt.Errorf("the job may have been triggered, and the same request again would be another run: "+
			"list its slots, or send a key with each request: %w", err)
	}
	return row.Triggered(t), err
}

func resume(ctx context.Context, c *client.Client, in JobRequest) (Edited, error) {
	r, err := c.Resume(ctx, in.Job, client.ResumeOptions{})
	return Edited{r.Job.Name, r.Changed, r.Revision, r.Missed, r.Runs}, err
}

func show(ctx context.Context, c *client.Client, in JobRequest) (JobDetails, error) {
	d, err := c.Job(ctx, in.Job)
	if err != nil {
		return JobDetails{}, err
	}
	out := JobDetails{Revision: d.Revision, Handlers: d.Handlers, Next: d.Next}
	if d.Broken != nil {
		out.Broken = d.Broken.Error()
		return out, nil
	}
	out.Definition, err = d.Value()
	return out, err
}

func apply(ctx context.Context, c *client.Client, in ApplyRequest) (Applied, error) {
	file, err := spec.ParseJSON("file", in.File, spec.WithoutActions())
	if err != nil {
		return Applied{}, fmt.Errorf("%w: %w", job.ErrInvalid, err)
	}
	jobs := codec.Map(file.Jobs, func(e spec.Entry) job.Job { return e.Job })
	report, err := c.Apply(ctx, jobs, client.ApplyOptions{Prune: in.Prune, DryRun: in.DryRun, Seen: in.Revision})
	var out Applied
	failed := false
	for _, a := range report {
		applied := AppliedJob{Job: a.Job, Action: a.Action, Revision: a.Revision, Handlers: a.Handlers}
		if a.Err != nil {
			applied.Error, failed = a.Err.Error(), true
		}
		out.Jobs = append(out.Jobs, applied)
	}
	if failed {
		err = nil // each job has its own
	}
	return out, err
}

func backfill(ctx context.Context, c *client.Client, in BackfillRequest) (Backfilled, error) {
	ctx, cancel := context.WithTimeout(ctx, patience/2)
	defer cancel()
	rate, err := row.Rate(in.Rate)
	if err != nil {
		return Backfilled{}, err
	}
	b, err := c.Backfill(ctx, in.Job, client.BackfillOptions{From: in.From, To: in.To, Rate: rate, Clip: in.Clip}, nil)
	out := Backfilled{b.Slots, b.Known(), b.Waiting, b.TooOld, b.Published, err == nil}
	if ctx.Err() != nil && b.Slots > 0 {
		err = nil
	}
	return out, err
}

// SlotRequest is a request about one slot.
type SlotRequest struct {
	ID string `json:"id" doc:"like report:2026-11-21T07:00:00Z"`
	by
}

// SlotDetails is what is stored about a slot.
type SlotDetails struct {
	ID       string          `json:"id"`
	State    job.State       `json:"state"`
	Record   json.RawMessage `json:"record,omitempty" doc:"the stored value, as docs/protocol.md describes it"`
	Revision uint64          `json:"revision,omitempty"`
	Queue    string          `json:"queue,omitempty" doc:"the queue in which the slot waits"`
	Due      time.Time       `json:"due,omitzero"`
}

// Story is what happened to a slot, or why it does not exist.
type Story struct {
	client.Story
	Steps []client.Step `json:"steps"` // never left out
}

func slotOrders() []order {
	return []order{
		newOrder("slot.show", "Return all that is stored about a slot.", showSlot),
		newOrder("slot.explain", "Say what happened to a slot, or why it does not exist.", explain),
		newOrder("slot.retry", "Give a slot that ended without success a new start.", func(ctx context.Context, c *client.Client, in SlotRequest) (row.Retry, error) {
			r, err := c.Retry(ctx, in.ID)
			return row.Retried(r), err
		}),
		newOrder("slot.cancel", "End a slot that waits or runs, for good.", cancelSlot),
	}
}

func showSlot(ctx context.Context, c *client.Client, in SlotRequest) (SlotDetails, error) {
	d, err := c.Slot(ctx, in.ID)
	if err != nil {
		return SlotDetails{}, err
	}
	out := SlotDetails{ID: d.ID, State: d.State, Revision: d.Revision, Queue: d.Queue, Due: d.Due}
	if d.Record != nil {
		out.Record, err = json.Marshal(d.Record)
	}
	return out, err
}

func explain(ctx context.Context, c *client.Client, in SlotRequest) (Story, error) {
	s, err := c.Explain(ctx, in.ID)
	return Story{s, append([]client.Step{}, s.Steps...)}, err
}

var errStillRuns = fmt.Errorf("the slot was asked to end and still runs: repeat the request to keep waiting: %w", job.ErrUnknown)

func cancelSlot(ctx context.Context, c *client.Client, in SlotRequest) (row.Cancel, error) {
	ctx, cancel := context.WithTimeout(ctx, patience/2)
	defer cancel()
	asked := false
	r, err := c.Cancel(ctx, in.ID, func(client.CancelWait) { asked = true })
	if err != nil && asked && ctx.Err() != nil {
		err = errStillRuns
	}
	return row.Cancelled(r), err
}
