package slots

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/job"
)

const (
	// findEvery is how often the ledger is searched for slots that run, because no event reports
	// the start of a slot.
	findEvery = time.Second

	// cannotFollow is logged if a node does not send the output of a slot.
	cannotFollow = "cannot follow the output now; the recorded part is printed when the attempt ends"

	// mostFollowed bounds the slots that are followed at once.
	mostFollowed = 64
)

// follow prints the events of one job, and the output of its slots, until ctx ends.
func (f watchFlags) follow(ctx context.Context, r base.Session) error {
	c, events, failed := r.Client(), make(chan job.Event), make(chan error, 1)
	go func() {
		failed <- f.events(ctx, r, c, func(e job.Event) error { return send(ctx, events, e) })
	}()
	o := &outputs{Session: r, client: c, pieces: make(chan slotOutput), followed: map[string]bool{}, ended: map[string]uint64{}, open: map[string]string{}}
	find := time.NewTicker(findEvery)
	defer find.Stop()
	if err := o.find(ctx, f.job); err != nil {
		return err
	}
	for {
		var err error
		select {
		case err = <-failed:
			return err
		case e := <-events:
			if state := job.State(e.Kind); e.ID != "" && e.Attempt > 0 && (state.Final() || state == job.Retrying) {
				o.follow(ctx, e.ID, e.Fence)
			}
			if e.Kind != job.EventOutput {
				err = f.print(r, e)
			}
		case p := <-o.pieces:
			err = o.print(p)
		case <-find.C:
			err = o.find(ctx, f.job)
		}
		if err != nil {
			return err
		}
	}
}

// send sends v, unless ctx ends first.
func send[T any](ctx context.Context, to chan<- T, v T) error {
	select {
	case to <- v:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// outputs prints the output of slots. One goroutine uses it. For each slot that is followed,
// another one sends pieces.
type outputs struct {
	base.Session
	client *client.Client
	pieces chan slotOutput

	followed map[string]bool
	ended    map[string]uint64 // by slot that was followed: the fence of its last attempt
	open     map[string]string // by slot: its last line, which has no end yet
}

// slotOutput is a piece of a slot's output, or the end of it. With -o json it is a line.
type slotOutput struct {
	Kind job.EventKind `json:"kind"`
	ID   string        `json:"id"`
	client.TailPiece

	done  bool
	fence uint64 // with done
	err   error  // with done
}

// find starts to follow the slots of the job that run.
func (o *outputs) find(ctx context.Context, name string) error {
	// Pending slots are left out, so that ListSlots does not read the streams.
	filter := client.SlotFilter{Job: name, Newest: true, Limit: mostFollowed, States: client.SlotStates()[1:]}
	list, err := o.client.ListSlots(ctx, filter)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, job.ErrUnknown):
		return nil // the server does not answer now
	case err != nil:
		return err
	}
	for _, s := range list.Slots {
		if s.State == job.Running {
			o.follow(ctx, s.ID, s.Fence)
		}
	}
	return nil
}

// follow starts to tail a slot, unless it is followed already or the attempt was followed.
func (o *outputs) follow(ctx context.Context, id string, fence uint64) {
	if last, known := o.ended[id]; o.followed[id] || known && fence <= last {
		return
	}
	if len(o.followed) >= mostFollowed {
		o.Log.Warn("too many slots run at once: not following the output of this one", "slot", id, "limit", mostFollowed)
		o.end(id, fence)
		return
	}
	o.followed[id] = true
	go func() {
		var d client.SlotDetails
		var err error
		for p, failed := range o.client.Tail(ctx, id) {
			if err = failed; err != nil {
				break
			}
			if p.Outcome != nil {
				d = *p.Outcome
			} else if send(ctx, o.pieces, slotOutput{Kind: job.EventOutput, ID: id, TailPiece: p}) != nil {
				return // ctx has ended
			}
		}
		_ = send(ctx, o.pieces, slotOutput{ID: id, done: true, fence: max(fence, d.Fence), err: err}) // fails only when ctx has ended
	}()
}

func (o *outputs) end(id string, fence uint64) {
	const most = 10_000
	if len(o.ended) >= most {
		clear(o.ended)
	}
	delete(o.followed, id)
	o.ended[id] = fence
}

func (o *outputs) print(p slotOutput) error {
	var refused *client.SlotError
	switch {
	case p.done:
		o.end(p.ID, p.fence)
		if p.err != nil && !errors.As(p.err, &refused) { // a split slot has no output of its own
			o.Log.Warn("cannot follow the output any longer", "slot", p.ID, "error", p.err)
		}
		rest := o.open[p.ID]
		delete(o.open, p.ID)
		return o.line(p.ID, rest)
	case p.Problem != nil:
		o.Log.Warn(cannotFollow, "slot", p.ID, "node", p.Node, "error", p.Problem)
		return nil
	case o.Output == base.OutputJSON:
		return o.PrintJSON(p)
	}
	if p.Skipped > 0 {
		p.TailPiece.Output = fmt.Sprintf("\n... (%d bytes skipped) ...\n%s", p.Skipped, p.TailPiece.Output)
	}
	text := o.open[p.ID] + p.TailPiece.Output
	const longest = 4096 // a line that never ends is printed in parts
	for len(text) > 0 {
		line, rest, whole := strings.Cut(text, "\n")
		if !whole && len(line) < longest {
			break
		}
		if err := o.line(p.ID, line); err != nil {
			return err
		}
		text = rest
	}
	o.open[p.ID] = text
	return nil
}

// line prints a line of a slot's output.
func (o *outputs) line(id, text string) error {
	if text == "" {
		return nil
	}
	_, err := fmt.Fprintf(o.Stdout, "%s | %s\n", printable.Line(id), printable.Line(strings.TrimSuffix(text, "\r")))
	return err
}
