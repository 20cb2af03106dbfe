package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/schema"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

// order is one endpoint: an operation of package client.
type order struct {
	name, what string
	in, out    string // schemas
	run        func(ctx context.Context, s *server, request []byte) (any, error)
}

// by is the author of a request.
type by struct {
	By string `json:"by,omitempty" doc:"the author of the request, as records and events show it"`
}

func (b by) author() string { return b.By }

// named is a request with an author.
type named interface{ author() string }

// newOrder is the order that f carries out.
func newOrder[In named, Out any](name, what string, f func(context.Context, *client.Client, In) (Out, error)) order {
	return order{name, what, schema.Text[In](), schema.Text[Out](), func(ctx context.Context, s *server, request []byte) (any, error) {
		var in In
		if err := strictly(request, &in); err != nil {
			return nil, err
		}
		author := cmp.Or(in.author(), "api")
		if err := job.ValidateToken(author); err != nil {
			return nil, fmt.Errorf("by: %w", err)
		}
		c := client.Attach(attach.Of(s.conn, s.store, attach.Options{Operator: author, Now: s.now, Logger: s.log}))
		return f(ctx, c, in)
	}}
}

// strictly reads a request; nothing is an empty one.
func strictly(request []byte, into any) error {
	if len(bytes.TrimSpace(request)) == 0 {
		request = []byte("{}")
	}
	d := json.NewDecoder(bytes.NewReader(request))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("there is something after the object")
		}
	}
	if err != nil {
		return fmt.Errorf("%w request: %w", job.ErrInvalid, err)
	}
	return nil
}

// Of is a request about one job.
type Of struct {
	Job string `json:"job"`
	by
}

// Revised is what became of a job.
type Revised struct {
	Job      string `json:"job"`
	Changed  bool   `json:"changed" doc:"false: it was so already"`
	Revision uint64 `json:"revision,omitempty"`
	Missed   int    `json:"missed,omitempty" doc:"slots that fell due in the pause"`
	Runs     int    `json:"runs,omitempty" doc:"how many of them catch-up runs"`
}

// Triggering is an order for one run.
type Triggering struct {
	Job     string          `json:"job"`
	Key     string          `json:"key,omitempty" doc:"names the run: the same key again is the same run"`
	At      time.Time       `json:"at,omitzero" doc:"when; left out: at once"`
	Payload json.RawMessage `json:"payload,omitempty" doc:"any JSON; left out: the job's own"`
	by
}

// Triggered is what became of it.
type Triggered struct {
	ID    string    `json:"id"`
	State job.State `json:"state"`
	New   bool      `json:"new"`
	Queue string    `json:"queue"`
	Due   time.Time `json:"due,omitzero"`
}

// Applying brings in the jobs of a file.
type Applying struct {
	File     json.RawMessage `json:"file" doc:"a job file, as JSON; actions are left out"`
	Prune    bool            `json:"prune,omitempty"`
	DryRun   bool            `json:"dry_run,omitempty"`
	Revision *uint64         `json:"revision,omitempty" doc:"change nothing that was written after it"`
	by
}

// Applied is what became of the jobs.
type Applied struct {
	Jobs []AppliedJob `json:"jobs"`
}

// AppliedJob is one of them.
type AppliedJob struct {
	Job      string        `json:"job"`
	Action   client.Action `json:"action"`
	Revision uint64        `json:"revision,omitempty"`
	Handlers int           `json:"handlers" doc:"live nodes that would run it"`
	Error    string        `json:"error,omitempty"`
}

// Details is what is known of a job.
type Details struct {
	Definition json.RawMessage `json:"definition,omitempty" doc:"as docs/protocol.md has the values of the registry"`
	Revision   uint64          `json:"revision"`
	Broken     string          `json:"broken,omitempty"`
	Handlers   []string        `json:"handlers,omitempty" doc:"live nodes that would run it"`
	Next       []time.Time     `json:"next,omitempty"`
}

// Backfilling asks for the slots of a range.
type Backfilling struct {
	Job  string    `json:"job"`
	From time.Time `json:"from"`
	To   time.Time `json:"to,omitzero"`
	Rate int       `json:"rate,omitempty" doc:"slots per second"`
	Clip bool      `json:"clip,omitempty" doc:"leave out what is older than the horizon"`
	by
}

// Backfilled counts them. Not complete: the same again does the rest.
type Backfilled struct {
	Slots     int  `json:"slots"`
	Known     int  `json:"known"`
	Waiting   int  `json:"waiting"`
	TooOld    int  `json:"too_old"`
	Published int  `json:"published"`
	Complete  bool `json:"complete"`
}

func orders() []order {
	revised := func(e client.Edited, err error) (Revised, error) {
		return Revised{Job: e.Job.Name, Changed: e.Changed, Revision: e.Revision}, err
	}
	return slices.Concat([]order{
		newOrder("job.show", "Tell what is known of a job.", show),
		newOrder("job.apply", "Create and update jobs from a file.", apply),
		newOrder("job.rm", "Remove a job.", func(ctx context.Context, c *client.Client, in Of) (Revised, error) {
			return Revised{Job: in.Job, Changed: true}, c.Remove(ctx, in.Job, client.RemoveOptions{})
		}),
		newOrder("job.pause", "Have what falls due of a job not be published.", func(ctx context.Context, c *client.Client, in Of) (Revised, error) {
			return revised(c.Pause(ctx, in.Job))
		}),
		newOrder("job.resume", "End a pause.", resume),
		newOrder("job.release", "Let files and code change a job again.", func(ctx context.Context, c *client.Client, in Of) (Revised, error) {
			return revised(c.Release(ctx, in.Job))
		}),
		newOrder("job.trigger", "Run a job, now or later.", func(ctx context.Context, c *client.Client, in Triggering) (Triggered, error) {
			t, err := c.Trigger(ctx, in.Job, client.TriggerOptions{Key: in.Key, At: in.At, Payload: in.Payload})
			return Triggered{t.Slot.ID(), t.State, t.New, t.Queue, t.Due}, err
		}),
		newOrder("job.backfill", "Run the slots of a range that have no outcome.", backfill),
	}, slotOrders(), listOrders())
}

func resume(ctx context.Context, c *client.Client, in Of) (Revised, error) {
	r, err := c.Resume(ctx, in.Job, client.ResumeOptions{})
	return Revised{r.Job.Name, r.Changed, r.Revision, r.Missed, r.Runs}, err
}

func show(ctx context.Context, c *client.Client, in Of) (Details, error) {
	d, err := c.Job(ctx, in.Job)
	if err != nil {
		return Details{}, err
	}
	out := Details{Revision: d.Revision, Handlers: d.Handlers, Next: d.Next}
	if d.Broken != nil {
		out.Broken = d.Broken.Error()
		return out, nil
	}
	out.Definition, err = d.Value()
	return out, err
}

func apply(ctx context.Context, c *client.Client, in Applying) (Applied, error) {
	file, err := spec.ParseJSON("file", in.File, spec.WithoutActions())
	if err != nil {
		return Applied{}, fmt.Errorf("%w: %w", job.ErrInvalid, err)
	}
	jobs := make([]job.Job, len(file.Jobs))
	for i, e := range file.Jobs {
		jobs[i] = e.Job
	}
	report, err := c.Apply(ctx, jobs, client.ApplyOptions{Prune: in.Prune, DryRun: in.DryRun, Seen: in.Revision})
	var out Applied
	failed := false
	for _, a := range report {
		row := AppliedJob{Job: a.Job, Action: a.Action, Revision: a.Revision, Handlers: a.Handlers}
		if a.Err != nil {
			row.Error, failed = a.Err.Error(), true
		}
		out.Jobs = append(out.Jobs, row)
	}
	if failed {
		err = nil // told of each
	}
	return out, err
}

func backfill(ctx context.Context, c *client.Client, in Backfilling) (Backfilled, error) {
	ctx, cancel := context.WithTimeout(ctx, patience/2)
	defer cancel()
	b, err := c.Backfill(ctx, in.Job, client.BackfillOptions{From: in.From, To: in.To, Rate: in.Rate, Clip: in.Clip}, nil)
	out := Backfilled{b.Slots, b.Known(), b.Waiting, b.TooOld, b.Published, err == nil}
	if ctx.Err() != nil && b.Slots > 0 {
		err = nil
	}
	return out, err
}
