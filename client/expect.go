package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// publishGrace is how long after it was due a slot without a record and a message may still be
// published.
const publishGrace = 2 * time.Minute

// Expect returns what is known of a slot, like Slot, also if the slot is planned and not published
// yet: then the State of the details is job.Pending. If the slot does not exist and will not exist,
// the error wraps job.ErrNotFound. Wait begins in this way.
func (c *Client) Expect(ctx context.Context, id string) (SlotDetails, error) {
	s, err := job.ParseSlotID(id)
	if err != nil {
		return SlotDetails{}, err
	}
	r, revision, err := c.record(ctx, s)
	if err != nil {
		return SlotDetails{}, err
	}
	if r != nil {
		return recordedDetails(*r, revision), nil
	}
	d, _, err := c.expected(ctx, s)
	if err == nil && d.State == "" {
		d.State = job.Pending
	}
	return d, err
}

// expectation returns what is known of a slot without a record. If the slot will never have one, the
// error wraps job.ErrNotFound. If that can still turn out, next checks it again.
type expectation func(ctx context.Context, s job.Slot) (d SlotDetails, next expectation, err error)

// expected is the first expectation of each slot: it searches the streams and the plan.
func (c *Client) expected(ctx context.Context, s job.Slot) (SlotDetails, expectation, error) {
	return c.expectedBy(ctx, s, nil)
}

// expectedBy is expected for a slot that slots of the jobs by come after, in one chain. Several
// operators together can write a chain that ends in itself.
func (c *Client) expectedBy(ctx context.Context, s job.Slot, by []string) (SlotDetails, expectation, error) {
	if c.cfg.NoList {
		return nameOnly(s), nil, nil
	}
	d, err := c.Slot(ctx, s.ID())
	if errors.Is(err, job.ErrDenied) {
		return nameOnly(s), nil, nil // this login may not list the waiting slots
	}
	if !errors.Is(err, job.ErrNotFound) {
		return d, nil, err
	}
	e, err := c.read(ctx, s.Job)
	if err != nil {
		return SlotDetails{}, nil, err
	}
	d = nameOnly(s)
	d.Queue = e.Job.WithDefaults().Queue
	none := func(format string, args ...any) (SlotDetails, expectation, error) {
		return SlotDetails{}, nil, &SlotError{Slot: s, Why: "there is no such slot: " + fmt.Sprintf(format, args...)}
	}
	now, err := c.cfg.Now(ctx)
	switch {
	case err != nil:
		return d, nil, err
	case s.Range:
		return none("no range of missed slots begins at this instant")
	case s.Shards > 0 && s.Shards != e.Job.Shards:
		return none("job %s does not split its slots into %d shards", s.Job, s.Shards)
	case slices.Contains(by, s.Job):
		return none("job %s comes after itself", s.Job)
	case len(e.Job.After) > 0:
		succeeded, err := c.predecessors(ctx, s, e.Job.After, func(before job.Slot) error {
			_, _, err := c.expectedBy(ctx, before, append(by, s.Job))
			return err
		})
		if err == nil && !succeeded.IsZero() && !now.Before(succeeded.Add(publishGrace)) {
			return none("the last of the jobs that it comes after succeeded at %s, and it has no record", succeeded.UTC().Format(time.RFC3339))
		}
		return d, c.followed, err
	case s.Token != "":
		return none("no run of job %s with the key %s was ordered, or its outcome is not kept any longer", s.Job, s.Token)
	}
	plan, err := job.ParseSchedule(s.Job, e.Job.Plan())
	if err != nil {
		return d, nil, err
	}
	d.Due = s.At.Add(plan.Delay())
	switch {
	case !e.Job.Plan().Scheduled():
		return none("job %s has no schedule: it starts %s", s.Job, e.Job.Plan().Start())
	case !plan.Includes(s.At):
		return none("it is not in the plan of job %s: schedule %q, timezone %s", s.Job, e.Job.Schedule, plan.Location())
	case !now.Before(d.Due.Add(publishGrace)):
		return none("it was due at %s, and has no record", d.Due.UTC().Format(time.RFC3339))
	}
	return d, nil, nil
}

// followed is the further expectation of a slot that comes after others: it reads their records only.
func (c *Client) followed(ctx context.Context, s job.Slot) (SlotDetails, expectation, error) {
	d := nameOnly(s)
	e, err := c.read(ctx, s.Job)
	if err != nil {
		return d, nil, err
	}
	d.Queue = e.Job.WithDefaults().Queue
	_, err = c.predecessors(ctx, s, e.Job.After, func(job.Slot) error { return nil })
	return d, c.followed, err
}

// predecessors reads the slots that s comes after. If all have succeeded, it returns when the last
// one did. If one ended in another way, the error is a *SlotError. For one without a record it calls
// absent.
func (c *Client) predecessors(ctx context.Context, s job.Slot, names []string, absent func(job.Slot) error) (succeeded time.Time, err error) {
	all := true
	for _, name := range names {
		before := s.Whole()
		before.Job = name
		r, _, err := c.record(ctx, before)
		if r == nil && err == nil {
			err = absent(before)
			if errors.Is(err, job.ErrNotFound) {
				err = &SlotError{Slot: s, Why: fmt.Sprintf("there is no such slot: it comes after %s: %v", before, err)}
			}
		}
		switch {
		case err != nil:
			return time.Time{}, err
		case r != nil && r.State == job.Succeeded:
			if r.Finished.After(succeeded) {
				succeeded = r.Finished
			}
			continue
		case r != nil && r.State.Final():
			return time.Time{}, &SlotError{Slot: s, Why: fmt.Sprintf("there is no such slot: it comes after %s, which ended %s%s", before, r.State, core.Because(r.Error))}
		}
		all = false
	}
	if !all {
		succeeded = time.Time{}
	}
	return succeeded, nil
}
