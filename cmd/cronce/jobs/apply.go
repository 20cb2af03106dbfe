package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/control"
	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/job"
)

type applyFlags struct {
	file     string
	prune    bool
	dryRun   bool
	revision uint64
	seen     *uint64 // revision, if it was given
}

func newJobApplyCommand(a *base.App) *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create and update jobs from a file, while the fleet works",
		Long: `Apply brings the jobs of a file into the registry, and says what that changes: each
setting, and which slots come (+) and go (-) among the next five. An edit holds for
slots after it. All nodes hear of it at once; no restart is needed.

A job that apply has changed is the operator's: no node's file or code changes it
again until "cronce job release". A job that is already as in the file is left
alone, and stays whose it is. To roll back, apply the older file.

Actions in the file are not applied: what a job does belongs to the workers that
read it from files of their own. So jobs may be without one here, and a job that
no live node has a handler for is warned about: its slots would wait.

All jobs are read and checked before the first is written. When somebody else
writes one of them in the same moment, theirs stands, the others go on, and the
status is 1. To be sure of what you saw before, give --revision the number that
--dry-run, or job show, has told you. After a crash each job is as it was or as
it is in the file; apply the file again.

--prune also removes the jobs that apply has created and that are not in the file:
those of all files that were ever applied in this namespace, so keep to one. Jobs
that a node's file or code has created are never pruned, whoever edited them
since, nor are released ones.

With -o json, a line for each job. change is created, updated, removed, unchanged,
failed (see error), or not_tried after another has failed; was tells who wrote what
stood there; handlers counts the live nodes that would run the job. What is absent
is omitted:

  {"job":"report","change":"updated","revision":12,
   "was":{"owner":"file","node":"web1-711-0kq1-x2","at":"2026-11-20T09:00:00Z"},
   "fields":[{"field":"schedule","old":"0 7 * * *","new":"0 8 * * *"}],
   "appear":["2026-11-22T08:00:00Z"],"disappear":["2026-11-22T07:00:00Z"],"handlers":3}`,
		Example: `  cronce job apply -f jobs.yaml --dry-run
  cronce job apply -f jobs.yaml --prune
  generate-jobs | cronce job apply -f -`,
		Args: base.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.file == "" {
				return base.Try(base.Usage(errors.New("job apply needs -f FILE")), "cronce job apply --help")
			}
			if cmd.Flags().Changed("revision") {
				f.seen = &f.revision
			}
			file, err := a.ReadJobFile(cmd.Context(), f.file, jobfile.WithoutActions())
			if err != nil {
				return err
			}
			return a.Read(cmd.Context(), "job apply", func(ctx context.Context, r base.Reader) error {
				return apply(ctx, r, file, f)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "file", "f", "", "job `file` (- is standard input)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what would change, and change nothing")
	flags.BoolVar(&f.prune, "prune", false, "also remove what apply has created and is not in the file")
	flags.Uint64Var(&f.revision, "revision", 0, "change nothing if a job to be changed was written after revision `N`")
	return cmd
}

func apply(ctx context.Context, r base.Reader, file *jobfile.File, f applyFlags) error {
	jobs := make([]job.Job, len(file.Jobs))
	for i, e := range file.Jobs {
		jobs[i] = e.Job
	}
	r.Alive = r.Telling("still applying")
	report, err := r.Control().Apply(ctx, jobs, control.ApplyOptions{Prune: f.prune, DryRun: f.dryRun, Seen: f.seen})
	if len(report) > 0 {
		if err := printApplied(r, report, f.dryRun); err != nil {
			return err
		}
		warnOfNoHandler(r, report)
		for _, d := range report {
			if len(d.Missing) > 0 {
				r.Log.Warn("the job comes after jobs that are not there: it cannot start before they are", "job", d.Job, "missing", d.Missing)
			}
		}
	}
	return ofApply(ctx, r, err)
}

// ofApply adds the next step to the error of the first job that failed.
func ofApply(ctx context.Context, r base.Reader, err error) error {
	var conflict *control.ConflictError
	if errors.As(err, &conflict) {
		return r.OfJob(ctx, conflict.Job, err)
	}
	if errors.Is(err, job.ErrDenied) {
		return base.Denied(err)
	}
	if errors.Is(err, job.ErrUnknown) {
		return base.Try(err, "the same again, which settles it")
	}
	return err
}

// warnOfNoHandler names the jobs that nobody would run, as far as a line goes.
func warnOfNoHandler(r base.Reader, report []control.Applied) {
	const most = 10
	var names []string
	count := 0
	for _, d := range report {
		if d.Action == control.Delete || d.Handlers > 0 || d.Err != nil {
			continue
		}
		if count++; count <= most {
			names = append(names, d.Job)
		}
	}
	if count > 0 {
		r.Log.Warn("no live node would run these jobs: their slots wait for one that has a handler and works on the queue", "jobs", names, "count", count)
	}
}

// applyRow is one line of output.
type applyRow struct {
	Job       string          `json:"job"`
	Change    string          `json:"change"`
	Revision  uint64          `json:"revision,omitempty"`
	Was       *writtenBy      `json:"was,omitempty"`
	Broken    string          `json:"broken,omitempty"`
	Fields    []control.Field `json:"fields,omitempty"`
	Appear    []time.Time     `json:"appear,omitempty"`
	Disappear []time.Time     `json:"disappear,omitempty"`
	Paused    bool            `json:"paused,omitempty"`
	Handlers  *int            `json:"handlers,omitempty"`
	DryRun    bool            `json:"dry_run,omitempty"`
	Error     string          `json:"error,omitempty"`
}

type writtenBy struct {
	Owner string    `json:"owner"`
	Node  string    `json:"node"`
	At    time.Time `json:"at"`
}

// appliedAs is what each action is called once it is done.
var appliedAs = map[control.Action]string{
	control.Create: "created", control.Update: "updated", control.Delete: "removed", control.Keep: "unchanged",
}

// What else may become of a job.
const (
	applyFailed   = "failed"
	applyNotTried = "not_tried"
)

func newApplyRow(d control.Applied, dryRun bool) applyRow {
	row := applyRow{
		Job: d.Job, Change: appliedAs[d.Action], Revision: d.Revision, Fields: d.Fields,
		Appear: d.Appear, Disappear: d.Disappear, Paused: d.Paused, DryRun: dryRun,
	}
	if !d.At.IsZero() {
		row.Was = &writtenBy{d.Owner, d.Node, d.At.UTC()}
	}
	if d.Broken != nil {
		row.Broken = base.OneLine(d.Broken).Error()
	}
	switch {
	case errors.Is(d.Err, control.ErrNotTried):
		row.Change = applyNotTried
	case d.Err != nil:
		row.Change, row.Error = applyFailed, base.OneLine(d.Err).Error()
	}
	if d.Action != control.Delete {
		row.Handlers = &d.Handlers
	}
	return row
}
