package pages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/internal/web/pages/lanes"
	"github.com/cronce-io/cronce/internal/web/pages/shell"
	"github.com/cronce-io/cronce/internal/web/problem"
	"github.com/cronce-io/cronce/internal/web/stream"
	"github.com/cronce-io/cronce/job"
)

// slotView is what the page of a slot shows.
type slotView struct {
	ID, Job string

	// Slot is what is stored of it. Nil: there is no such slot.
	Slot  *slotDetails
	Story client.Story
	Steps []stepView
	Chart lanes.Chart

	// Retry and Cancel report whether these orders are possible in the slot's state.
	Retry, Cancel bool
}

// stepView is a step, with how long after the due time of the slot it happened.
type stepView struct {
	client.Step
	After string
}

type slotDetails struct {
	client.SlotDetails
	Late, Took time.Duration

	// Earlier are the earlier attempts that have an output, the newest first.
	Earlier []job.Attempt
}

func (s *Site) slot() shell.Page {
	return shell.Page{Path: "/slots/{id}", Nav: "slots", File: "slot.html", Show: func(r *shell.Request) (any, error) {
		id := r.PathValue("id")
		parsed, err := job.ParseSlotID(id)
		if err != nil {
			return nil, err
		}
		d := slotView{ID: parsed.ID(), Job: parsed.Job}
		if d.Story, err = r.Client.Explain(r.Context(), id); err != nil {
			return nil, err
		}
		d.Steps = stepViews(d.Story)
		stored, err := r.Client.Slot(r.Context(), id)
		if none, ok := errors.AsType[*client.SlotError](err); ok && none.State == "" {
			return d, nil
		}
		if err != nil {
			return nil, err
		}
		d.Slot = newSlotDetails(stored)
		d.Chart = lanes.New(d.Story, stored.Attempts, time.Now(), shell.Span)
		d.Retry = stored.State.Final() && stored.State != job.Succeeded || stored.State == job.Retrying
		d.Cancel = !stored.State.Final()
		return d, nil
	}}
}

func stepViews(s client.Story) (list []stepView) {
	for _, step := range s.Steps {
		v := stepView{Step: step}
		if after := step.Time.Sub(s.Due); !s.Due.IsZero() && after > 0 {
			v.After = "+" + shell.Span(after)
		}
		list = append(list, v)
	}
	return list
}

func newSlotDetails(s client.SlotDetails) *slotDetails {
	row := newSlotRow(s.SlotRow)
	d := &slotDetails{SlotDetails: s, Late: row.Late, Took: row.Took}
	for _, a := range slices.Backward(s.Attempts) {
		if a.Output != "" {
			d.Earlier = append(d.Earlier, a)
		}
	}
	return d
}

// slotOrder is the page of an order on one slot.
func slotOrder(verb string, say func(*shell.Request, client.SlotDetails, *order), do func(*shell.Request, string) error) shell.Page {
	return shell.Page{
		Path: "/slots/{id}/" + verb, Nav: "slots", File: "order.html",
		Show: func(r *shell.Request) (any, error) {
			id := r.PathValue("id")
			o := order{Verb: strings.ToUpper(verb[:1]) + verb[1:], Back: shell.Path("slots", id)}
			o.Title = o.Verb + " " + printable.Line(id)
			stored, err := r.Client.Slot(r.Context(), id)
			if err != nil {
				return nil, err
			}
			o.Job = stored.Job
			say(r, stored, &o)
			o.permit(r, reopens)
			return o, nil
		},
		Do: func(r *shell.Request) (string, error) {
			id := r.PathValue("id")
			return shell.Path("slots", id), do(r, id)
		},
	}
}

func sayRetry(r *shell.Request, s client.SlotDetails, o *order) {
	switch {
	case s.State == job.Succeeded:
		o.Says = append(o.Says, "The slot has succeeded, and a success stays. To run the job once more, trigger it.")
		return
	case !s.State.Final() && s.State != job.Retrying:
		o.Says = append(o.Says, fmt.Sprintf("The slot is %s: it needs no new start.", s.State))
		return
	}
	o.Ready, o.Verb = true, "Retry it now"
	d, err := r.Client.Job(r.Context(), s.Job)
	switch {
	case err != nil:
		o.Says = append(o.Says, "The job "+s.Job+" cannot be read: "+err.Error())
	case s.State == job.Retrying:
		o.Says = append(o.Says, "The slot waits for its next attempt. If its message was lost, it gets a new one; otherwise nothing changes.")
	default:
		attempts := max(1, d.Job.WithDefaults().Retry.Attempts)
		o.Says = append(o.Says, fmt.Sprintf("The slot ended %s after %s. It gets a new start at once, with up to %s more, in the queue %s.", s.State, plural(s.Attempt, "attempt"), plural(attempts, "attempt"), cmp.Or(s.Queue, d.Job.WithDefaults().Queue)))
	}
	if err == nil && len(d.Handlers) == 0 {
		o.Says = append(o.Says, "No live node has a handler for the job: the slot waits until one starts.")
	}
	o.Says = append(o.Says, "Its story keeps what happened before. Its ID stays the same, so a service that knows the ID does nothing twice.")
}

func doRetry(r *shell.Request, id string) error {
	_, err := r.Client.Retry(r.Context(), id)
	return err
}

func sayCancel(_ *shell.Request, s client.SlotDetails, o *order) {
	o.Ready, o.Danger, o.Verb = true, true, "End it for good"
	switch s.State {
	case job.Pending:
		o.Says = append(o.Says, "The slot has not started. It ends as cancelled, and no worker runs it.")
	case job.Retrying:
		o.Says = append(o.Says, fmt.Sprintf("The slot waits for attempt %d. It ends as cancelled, and the attempt does not start.", s.Attempt+1))
	case job.Running:
		o.Says = append(o.Says, fmt.Sprintf("The slot runs on %s, which is asked to end it: the context of its handler is cancelled, and a command gets a signal. The slot ends as cancelled when the handler has returned. What it did so far is not undone.", s.Node))
	default:
		o.Ready = false
		o.Says = append(o.Says, fmt.Sprintf("The slot has its outcome: %s. There is nothing to cancel.", s.State))
		return
	}
	o.Says = append(o.Says, "The job's other slots are not affected.")
}

// doCancel returns when the slot has ended. If that takes long, it returns after it has asked the
// node to end the slot; the page of the slot shows the rest.
func doCancel(r *shell.Request, id string) error {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	asked := false
	_, err := r.Client.Cancel(ctx, id, func(client.CancelWait) { asked = true })
	if asked && ctx.Err() != nil {
		return nil
	}
	return err
}

const (
	// maxTails bounds the outputs that a process follows at once.
	maxTails = 100

	// invisible is sent while the slot writes nothing.
	invisible = "\u200b"
)

// tail sends what a slot writes as plain text, until the slot has its outcome. A browser shows it
// as it arrives, even without a script.
func (s *Site) tail(w http.ResponseWriter, r *http.Request) {
	if !s.tails.TryAcquire(1) {
		problem.Write(w, fault.Unavailable, fmt.Sprintf("this process follows %d outputs already", maxTails))
		return
	}
	defer s.tails.Release(1)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	if _, err := s.client.Slot(ctx, r.PathValue("id")); err != nil {
		problem.Of(err, true).Write(w)
		return
	}
	pieces := make(chan string)
	go func() {
		defer close(pieces)
		for p, err := range s.client.Tail(ctx, r.PathValue("id")) {
			select {
			case pieces <- tailText(p, err):
			case <-ctx.Done():
				return
			}
		}
	}()
	to := stream.New(w, r, "text/plain; charset=utf-8")
	write := func(text string) error {
		_, err := io.WriteString(to, text)
		return err
	}
	if write("") == nil { // the browser shows the page before the first piece comes
		stream.Follow(ctx, to, pieces, invisible, write)
	}
}

func tailText(p client.TailPiece, err error) string {
	switch {
	case err != nil:
		return fmt.Sprintf("\n(%s)\n", printable.Line(err.Error()))
	case p.Outcome != nil:
		return fmt.Sprintf("\n(%s)\n", p.Outcome.State)
	case p.Problem != nil:
		return fmt.Sprintf("\n(the output cannot be followed; the outcome will show its beginning and its end: %s)\n", printable.Line(p.Problem.Error()))
	case p.Error != "":
		return fmt.Sprintf("\n(attempt %d failed: %s)\n", p.Attempt, printable.Text(p.Error))
	case p.Skipped > 0:
		return fmt.Sprintf("\n(%d bytes skipped)\n%s", p.Skipped, printable.Text(p.Output))
	}
	return printable.Text(p.Output)
}
