package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/api/row"
	"github.com/cronce-io/cronce/internal/web/problem"
)

const (
	// maxVerifying bounds the verifications that run at once in a process.
	maxVerifying = 2

	// verifyPatience bounds a verification.
	verifyPatience = 5 * time.Minute
)

type verifyIn struct {
	From  time.Time `query:"from" doc:"judge slots from this time on; left out: 24h before to"`
	To    time.Time `query:"to" doc:"judge slots before this time; left out: now"`
	Job   []string  `query:"job" doc:"only of these jobs: separated by commas, or repeated"`
	Limit int       `query:"limit" min:"1" max:"5000" default:"5000" doc:"how many rows at most; the sums count all slots"`
}

// Verification is what a verification found.
type Verification struct {
	client.Verification
	Rows       []client.SlotProblem `json:"rows" doc:"the slots that have a problem"`
	LeftOut    int                  `json:"left_out,omitempty" doc:"problems beyond limit, which have no row"`
	Unreadable []string             `json:"unreadable,omitempty" doc:"why stored values were left out: the first five reasons"`
}

func verifySlots(_ context.Context, c *call, in verifyIn) (Verification, error) {
	return c.verify(client.VerifyOptions{From: in.From, To: in.To, Jobs: in.Job}, "job", cmp.Or(in.Limit, row.MaxRows))
}

// RepairRange is the body of a repair.
type RepairRange struct {
	From time.Time `json:"from,omitzero" doc:"repair slots from this time on; left out: 24h before to"`
	To   time.Time `json:"to,omitzero" doc:"repair slots before this time; left out: now"`
	Jobs []string  `json:"jobs,omitempty" doc:"only of these jobs; left out: all"`
}

type repairIn struct {
	Body RepairRange `body:"" doc:"the range; may be left out"`
}

func repairSlots(_ context.Context, c *call, in repairIn) (Verification, error) {
	if in.Body.Jobs != nil && len(in.Body.Jobs) == 0 {
		// A program that found no job must not repair all of them.
		return Verification{}, wrong("jobs", `member "jobs" is empty: want the names of jobs, or leave it out for all`)
	}
	return c.verify(client.VerifyOptions{From: in.Body.From, To: in.Body.To, Jobs: in.Body.Jobs, Repair: true}, "jobs", row.MaxRows)
}

// verify runs a verification with a timeout of its own. It ends if the client closes the
// connection, or the server shuts down. jobs is the name of o.Jobs in the request.
func (c *call) verify(o client.VerifyOptions, jobs string, most int) (v Verification, err error) {
	if err := cmp.Or(blame(jobs, client.VerifyOptions{Jobs: o.Jobs}.Validate()), blame("to", o.Validate())); err != nil {
		return v, err
	}
	if !c.api.verifying.TryAcquire(1) {
		return v, problem.New(fault.Unavailable, fmt.Sprintf("this process runs %d verifications already: wait for their end, or ask another replica", maxVerifying))
	}
	defer c.api.verifying.Release(1)
	c.extend(verifyPatience)
	ctx, cancel := context.WithTimeout(c.request, verifyPatience)
	defer cancel()
	defer context.AfterFunc(c.api.closing, cancel)()
	var unreadable []error
	o.Unreadable = func(err error) {
		if len(unreadable) < row.MaxReasons {
			unreadable = append(unreadable, err)
		}
	}
	v.Rows = []client.SlotProblem{}
	v.Verification, err = c.Verify(ctx, o, func(p client.SlotProblem) error {
		if len(v.Rows) < most {
			v.Rows = append(v.Rows, p)
		} else {
			v.LeftOut++
		}
		return nil
	})
	v.Unreadable = row.Reasons(unreadable)
	if _, future := errors.AsType[*client.FutureError](err); future {
		err = blame("from", err)
	}
	return v, err
}
