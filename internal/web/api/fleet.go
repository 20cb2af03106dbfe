package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/api/row"
	"github.com/cronce-io/cronce/internal/web/problem"
)

// Diagnosis is what the doctor found.
type Diagnosis struct {
	Rows    []client.Finding `json:"rows" doc:"the findings, the worst first"`
	OK      bool             `json:"ok" doc:"there is no error and no warning among them"`
	Server  string           `json:"server" doc:"the name of the NATS server that answered"`
	Version string           `json:"version" doc:"its version"`
}

func examine(ctx context.Context, c *call, _ struct{}) (Diagnosis, error) {
	d, err := c.Doctor(ctx, client.DoctorOptions{})
	if d.Findings == nil {
		d.Findings = []client.Finding{}
	}
	return Diagnosis{d.Findings, d.OK, d.Server, d.Version}, err
}

type nodesIn struct {
	paging
	Former bool `query:"former" doc:"true: also the nodes that were declared dead and are no longer stored"`
}

func fleetOperations() []operation {
	return []operation{
		newOperation("listNodes", http.MethodGet, "/nodes", "List the nodes in the order of their start",
			func(ctx context.Context, c *call, in nodesIn) (row.Page[client.NodeRow], error) {
				list, err := c.Nodes(ctx, client.NodeFilter{After: in.cursor(), Former: in.Former})
				return newPage(c, in.paging, list.Nodes, "", list.Unreadable), blame("after", err)
			}),
		newOperation("getDoctor", http.MethodGet, "/doctor", "Inspect the broker, the stored data and the fleet", examine).
			says("It reads all records, so ask every few minutes at most. It changes nothing."),
		newOperation("verifySlots", http.MethodGet, "/verify", "Check that every slot of a range has exactly one outcome", verifySlots).
			says("It computes which slots should exist and compares them with the ledger. It reads all records of the range, takes up to " + verifyPatience.String() + ", and changes nothing.").
			asks("from=2026-11-21T00:00:00Z&to=2026-11-21T08:00:00Z").fails(fault.NotFound),
		newOperation("repairSlots", http.MethodPost, "/verify:repair", "Publish the missing and stuck slots of a range again", repairSlots).
			says("It verifies the range, and publishes the slots that are missing, or have neither an outcome nor a message. Workers treat them like any other slot, by their record. " +
				"The answer is what the verification found before the repair: verify again to see the result. You can safely repeat the request.").
			fails(fault.NotFound).
			curl(`-X POST -H 'Content-Type: application/json' -d '{"from": "2026-11-21T00:00:00Z", "to": "2026-11-21T08:00:00Z"}'`),
	}
}

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
	return c.verify(client.VerifyOptions{From: in.From, To: in.To, Jobs: in.Job}, "job", in.Limit)
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
