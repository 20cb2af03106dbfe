package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/api/row"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/internal/web/problem"
	"github.com/cronce-io/cronce/job"
)

// ofJob is the input of an operation on one job.
type ofJob struct {
	Job string `path:"job" doc:"the name of the job"`
}

type comingIn struct {
	ofJob
	After time.Time `query:"after" doc:"only slots after this time, which may be the slot of the last row that you have; left out: now"`
	Until time.Time `query:"until" doc:"only slots before this time"`
	Limit int       `query:"limit" min:"1" max:"5000" default:"10" doc:"how many slots at most"`
}

// Coming are the coming slots of a job.
type Coming struct {
	Rows   []row.Next `json:"rows"`
	Next   string     `json:"next,omitempty" doc:"there may be more: ask again with this as after. Left out: that was all"`
	Paused bool       `json:"paused" doc:"the slots fall due only if the job is resumed"`
	Start  string     `json:"start" doc:"what starts the job, in words"`
}

type putIn struct {
	ofJob
	Match  string          `header:"If-Match" doc:"the ETag of the job that you have seen"`
	None   string          `header:"If-None-Match" enum:"*" doc:"* creates the job, and fails if it exists"`
	DryRun bool            `query:"dry_run" doc:"true: change nothing, and return what would change. Needs no If-Match"`
	Body   json.RawMessage `body:"" required:"true" doc:"one job, as in a job file; its name may be left out, and an action is ignored"`
}

type deleteIn struct {
	ofJob
	Match string `header:"If-Match" empty:"error" doc:"the ETag of the job that you have seen; left out: any"`
}

type resumeIn struct {
	ofJob
	DryRun bool `query:"dry_run" doc:"true: change nothing, and return what would run"`
}

func jobOperations() []operation {
	return []operation{
		newOperation("listJobs", http.MethodGet, "/jobs", "List the jobs in the order of their last write", listJobs).asks("limit=100"),
		newOperation("getJob", http.MethodGet, "/jobs/{job}", "Everything that is known about a job", getJob).
			returns(answer{status: http.StatusOK, what: "The job", header: "ETag"}),
		newOperation("listComingSlots", http.MethodGet, "/jobs/{job}/next", "List the coming slots of a job", coming).asks("limit=3"),
		newOperation("putJob", http.MethodPut, "/jobs/{job}", "Create or change a job", putJob).
			says("The operator then owns the job: neither a file nor code changes it until it is released.").
			returns(answer{status: http.StatusOK, what: "The job was changed, or needed no change", header: "ETag"},
				answer{status: http.StatusCreated, what: "The job was created", header: "ETag"}).
			fails(fault.Changed, fault.Conflict, fault.PreconditionRequired).
			curl(`-X PUT -H 'If-None-Match: *' -H 'Content-Type: application/json' -d '{"schedule": "0 7 * * *"}'`),
		newOperation("deleteJob", http.MethodDelete, "/jobs/{job}", "Remove a job", deleteJob).
			says("A node whose file or code has the job creates it again when it starts.").fails(fault.Changed, fault.Conflict).curl("-X DELETE"),
		newOperation("pauseJob", http.MethodPost, "/jobs/{job}:pause", "Pause a job: none of its slots is published until it is resumed",
			func(ctx context.Context, c *call, in ofJob) (row.Pause, error) {
				e, err := c.Pause(ctx, in.Job)
				return row.Paused(e), err
			}).fails(fault.Conflict).curl("-X POST"),
		newOperation("resumeJob", http.MethodPost, "/jobs/{job}:resume", "End the pause of a job", resumeJob).
			says("The slots that fell due during the pause are missed, and the job's catch-up policy decides which of them run. dry_run=true says how many.").
			fails(fault.Conflict).curl("-X POST"),
		newOperation("releaseJob", http.MethodPost, "/jobs/{job}:release", "Let files and code change a job again",
			func(ctx context.Context, c *call, in ofJob) (row.Release, error) {
				e, err := c.Release(ctx, in.Job)
				return row.Released(e), err
			}).fails(fault.Conflict).curl("-X POST"),
	}
}

func listJobs(ctx context.Context, c *call, in paging) (row.Page[client.JobRow], error) {
	list, err := c.Jobs(ctx, client.JobFilter{After: in.cursor()})
	return newPage(c, in, list.Jobs, "", list.Unreadable), blame("after", err)
}

func getJob(ctx context.Context, c *call, in ofJob) (client.JobDetails, error) {
	d, err := c.Job(ctx, in.Job)
	if err == nil {
		c.header.Set("ETag", etag(d.Revision))
	}
	return d, err
}

func etag(revision uint64) string { return `"` + strconv.FormatUint(revision, 10) + `"` }

func coming(ctx context.Context, c *call, in comingIn) (Coming, error) {
	of, err := c.Next(ctx, in.Job)
	if err != nil {
		return Coming{}, err
	}
	out := Coming{Rows: []row.Next{}, Paused: of.Paused, Start: of.Job.Plan().Start()}
	out.Rows = slices.AppendSeq(out.Rows, row.Coming(of, in.After, in.Until, in.Limit))
	if n := len(out.Rows); n == in.Limit {
		out.Next = out.Rows[n-1].Slot.Format(time.RFC3339)
		c.linkNext(out.Next)
	}
	return out, nil
}

func putJob(ctx context.Context, c *call, in putIn) (row.Apply, error) {
	j, err := readJob(in.Job, in.Body)
	if err != nil {
		return row.Apply{}, err
	}
	would, err := c.apply(ctx, j, client.ApplyOptions{DryRun: true})
	if err != nil {
		return row.Apply{}, err
	}
	if !in.DryRun || in.Match != "" || in.None != "" {
		if err := in.check(would); err != nil {
			return row.Apply{}, err
		}
	}
	done := would
	if !in.DryRun {
		// Seen is the revision against which the precondition was checked.
		if done, err = c.apply(ctx, j, client.ApplyOptions{Seen: &would.Revision}); err != nil {
			return row.Apply{}, changed(err)
		}
	}
	if done.Revision > 0 {
		c.header.Set("ETag", etag(done.Revision))
	}
	if done.Action == client.Create && !in.DryRun {
		c.status = http.StatusCreated
	}
	return row.Applied(done, in.DryRun), nil
}

func (c *call) apply(ctx context.Context, j job.Job, o client.ApplyOptions) (client.Applied, error) {
	report, err := c.Apply(ctx, []job.Job{j}, o)
	if len(report) == 0 {
		return client.Applied{}, err
	}
	return report[0], report[0].Err
}

// check compares the preconditions with the stored job. If the stored job is already what the
// request wants, the preconditions do not matter: the same request may have been carried out
// before.
func (in putIn) check(would client.Applied) error {
	if in.Match != "" && in.None != "" {
		return wrong("If-Match", "If-Match and If-None-Match exclude each other")
	}
	seen, err := revisionOf(in.Match)
	exists := would.Action != client.Create
	switch {
	case err != nil || would.Action == client.Keep && in.Match+in.None != "":
		return err
	case in.Match == "" && in.None == "":
		return problem.New(fault.PreconditionRequired, "send If-Match: ETAG to change the job that you have seen, or If-None-Match: * to create it")
	case !exists && in.Match != "":
		return problem.New(fault.Changed, fmt.Sprintf("job %s does not exist: create it with If-None-Match: *", in.Job))
	case exists && (in.None != "" || would.Revision != seen):
		return changed(&client.ConflictError{Job: in.Job, By: would.Node, Owner: would.Owner, At: would.At, Revision: would.Revision})
	}
	return nil
}

// weak is an ETag that a proxy has weakened, as one that compresses answers does.
var weak = regexp.MustCompile(`^W/"[0-9]{1,20}"$`)

// revisionOf reads an ETag. "" is 0.
func revisionOf(match string) (uint64, error) {
	if match == "" {
		return 0, nil
	}
	if weak.MatchString(match) {
		return 0, problem.New(fault.Changed, fmt.Sprintf("If-Match %s is a weak ETag, which matches no job (RFC 9110): send %s", match, match[len("W/"):]))
	}
	n, err := strconv.ParseUint(strings.Trim(match, `"`), 10, 64)
	if err != nil || etag(n) != match {
		return 0, wrong("If-Match", "invalid If-Match %q: want the ETag of the job, like \"42\"", codec.Clip(match))
	}
	return n, nil
}

// readJob reads a job as it would be in a job file. Its name is that of the path.
func readJob(name string, body []byte) (job.Job, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return job.Job{}, wrong("body", "the body is not a JSON object: want one job, as in a job file")
	}
	if given, ok := members["name"]; ok {
		var is string
		if json.Unmarshal(given, &is) != nil || is != name {
			return job.Job{}, wrong("name", "the name %s is not that of the path: want %q, or none", codec.Clip(string(given)), name)
		}
	} else {
		at := bytes.IndexByte(body, '{') + 1
		comma := ", "
		if len(members) == 0 {
			comma = ""
		}
		body = []byte(string(body[:at]) + `"name": "` + name + `"` + comma + string(body[at:]))
	}
	file, err := spec.ParseJSON("body", []byte(`{"version": 1, "jobs": [`+string(body)+`]}`), spec.WithoutActions())
	if err != nil {
		return job.Job{}, fileProblem(err)
	}
	return file.Jobs[0].Job, nil
}

// fileProblem lists the mistakes of a job without their line and column, since readJob has changed
// the text that the client sent.
func fileProblem(err error) error {
	all, ok := errors.AsType[spec.Errors](err)
	if !ok || len(all) == 0 {
		return fmt.Errorf("%w: %w", job.ErrInvalid, err)
	}
	return wrong("body", "%s", strings.Join(codec.Map(all, func(e *spec.Error) string { return e.Message }), "; "))
}

// changed turns a conflict of an order that had a precondition into 412.
func changed(err error) error {
	lost, ok := errors.AsType[*client.ConflictError](err)
	if !ok {
		return err
	}
	d := problem.New(fault.Changed, lost.Error())
	d.By, d.Revision = lost.By, lost.Revision
	return d
}

func deleteJob(ctx context.Context, c *call, in deleteIn) (row.Remove, error) {
	var o client.RemoveOptions
	if in.Match != "" {
		seen, err := revisionOf(in.Match)
		if err != nil {
			return row.Remove{}, err
		}
		o.Seen = &seen
	}
	err := c.Remove(ctx, in.Job, o)
	if in.Match != "" {
		err = changed(err)
	}
	return row.Remove{Job: in.Job, Removed: true}, err
}

func resumeJob(ctx context.Context, c *call, in resumeIn) (row.Pause, error) {
	would, err := c.Resume(ctx, in.Job, client.ResumeOptions{DryRun: true})
	if err != nil {
		return row.Pause{}, err
	}
	line := row.WouldResume(would)
	if in.DryRun {
		return line, nil
	}
	done, err := c.Resume(ctx, in.Job, client.ResumeOptions{Seen: &would.Revision})
	return line.Resumed(done), err
}
