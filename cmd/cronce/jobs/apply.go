package jobs

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/api/row"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/job"
)

type applyFlags struct {
	file     string
	prune    bool
	yes      bool
	dryRun   bool
	revision uint64
	seen     *uint64 // revision, if it was given
}

func newJobApplyCommand(a *base.App) *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create and update jobs from a file while the fleet runs",
		Long: `Apply writes the jobs of a file into the registry and prints what changes: each
setting, and which of the next five slots appear (+) and disappear (-), or the next three
of a new job. A change applies to slots after it. All nodes see it at once; you do not
restart anything.

Once apply has changed a job, the operator owns it: no node's file or code changes it
again until "cronce job release". If a job already equals the file, apply does not
write it, and its owner stays. To roll back, apply the older file.

Apply does not store actions: what a job does belongs to the workers, which read it
from their own files. So a job may have no action here. If no live node has a handler
for a job, apply warns: its slots would wait.

Apply reads and checks all jobs before it writes the first. If someone else writes one
of them at the same moment, their version stands, the others are still applied, and the
status is 1. To be sure that nothing changed since you looked, pass --revision with the
number that --dry-run or job show printed. After a crash each job is either as before
or as in the file; apply the file again.

--prune also removes jobs that an earlier apply created and that are not in the file.
That includes the jobs of every other file applied in this namespace, so use only one
file. Jobs that a node's file or code created are never pruned, even if an operator
edited them later, and neither are released jobs. Before it removes more than a quarter of
the jobs that apply created, it asks; in scripts, add --yes.

With -o json, one line for each job. change is created, updated, removed, unchanged,
failed (see error), or not_tried (an earlier job failed); was is the writer of the
previous version; handlers counts the live nodes that would run the job. Absent values
are omitted:

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
			if f.yes && !f.prune {
				return base.Usage(errors.New("--yes needs --prune"))
			}
			file, err := a.ReadJobFile(cmd.Context(), f.file, spec.WithoutActions())
			if err != nil {
				return err
			}
			return a.Open(cmd.Context(), "job apply", func(ctx context.Context, r base.Session) error {
				return apply(ctx, r, file, f)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "file", "f", "", "job `file` (- is standard input)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print what would change, and change nothing")
	flags.BoolVar(&f.prune, "prune", false, "also remove the jobs that apply created and that are not in the file")
	flags.BoolVar(&f.yes, "yes", false, "with --prune: do not ask before many jobs are removed")
	flags.Uint64Var(&f.revision, "revision", 0, "change nothing if one of the jobs to change was written after revision `N`")
	return cmd
}

func apply(ctx context.Context, r base.Session, file *spec.File, f applyFlags) error {
	jobs := codec.Map(file.Jobs, func(e spec.Entry) job.Job { return e.Job })
	r.LogProgress("still applying")
	o := client.ApplyOptions{Prune: f.prune, DryRun: f.dryRun, Seen: f.seen}
	if !f.yes {
		o.BeforePrune = func(names []string, of int) error { return confirmPrune(ctx, r, names, of) }
	}
	report, err := r.Client().Apply(ctx, jobs, o)
	if len(report) > 0 {
		if err := printApplied(r, report, f.dryRun); err != nil {
			return err
		}
		warnOfNoHandler(r, report)
		for _, d := range report {
			if len(d.Missing) > 0 {
				r.Log.Warn("job comes after jobs that are not in the registry: it cannot start until they are", "job", d.Job, "missing", d.Missing)
			}
		}
	}
	if conflict, ok := errors.AsType[*client.ConflictError](err); ok {
		return r.JobError(ctx, conflict.Job, err)
	}
	return base.Unsettled(err)
}

// confirmPrune asks before more than a quarter of the jobs that apply created are removed: a file that was
// cut off, or the wrong file, lacks many of them.
func confirmPrune(ctx context.Context, r base.Session, names []string, of int) error {
	if 4*len(names) <= of {
		return nil
	}
	slices.Sort(names)
	some := strings.Join(names[:min(len(names), base.MostNamed)], ", ")
	if len(names) > base.MostNamed {
		some += ", ..."
	}
	what := fmt.Sprintf("remove %d of the %d jobs that apply created and that are not in the file (%s)", len(names), of, some)
	if !base.IsTerminal(r.Stdin) {
		return base.NoTerminal("job apply --prune would " + what + ": it")
	}
	yes, err := r.Confirm(ctx, bufio.NewReader(r.Stdin), r.Alive, "job apply --prune", "This will "+what+".\nGo on? [y/N] ")
	if err == nil && !yes {
		err = errors.New("nothing was changed")
	}
	return err
}

// warnOfNoHandler warns about the jobs that no live node has a handler for.
func warnOfNoHandler(r base.Session, report []client.Applied) {
	var names []string
	count := 0
	for _, d := range report {
		if d.Action == client.Delete || d.Handlers > 0 || d.Err != nil {
			continue
		}
		if count++; count <= base.MostNamed {
			names = append(names, d.Job)
		}
	}
	if count > 0 {
		r.Log.Warn("no live node runs these jobs: their slots wait until you start a worker of their queue that has a handler, as cronce run -f FILE does", "jobs", names, "count", count)
	}
}

func printApplied(r base.Session, report []client.Applied, dryRun bool) error {
	rows := codec.Map(report, func(d client.Applied) row.Apply { return row.Applied(d, dryRun) })
	if r.Output == base.OutputJSON {
		return base.PrintLines(r.App, slices.Values(rows))
	}
	out := bufio.NewWriter(r.Stdout)
	var newest uint64 // revision that the report was computed from
	for i, applied := range rows {
		printChange(out, applied, report[i])
		newest = max(newest, report[i].Revision)
	}
	fmt.Fprintln(out, applySummary(rows))
	if dryRun {
		fmt.Fprintf(out, "nothing was written; to apply exactly this, add --revision %d\n", newest)
	}
	return out.Flush()
}

// printChange writes what changes for one job. It writes nothing if nothing changes.
func printChange(w io.Writer, a row.Apply, d client.Applied) {
	switch {
	case a.Error != "":
		fmt.Fprintf(w, "%s: %s\n", a.Change, printable.Clip(a.Error, 1000))
		return
	case d.Action == client.Keep, a.Change == row.NotTried:
		return
	case a.DryRun:
		fmt.Fprintf(w, "would be %s: %s", a.Change, a.Job)
	default:
		fmt.Fprintf(w, "%s: %s", a.Change, a.Job)
	}
	if a.Was != nil {
		fmt.Fprintf(w, ", last written by %s (%s)", printable.Clip(a.Was.Node, base.WidestCell), printable.Clip(a.Was.Owner, base.WidestCell))
	}
	if a.Broken != "" {
		fmt.Fprintf(w, ", in place of a broken definition: %s", printable.Clip(a.Broken, 1000))
	}
	fmt.Fprintln(w)
	if d.Action == client.Create {
		j := d.Stored.WithDefaults()
		fmt.Fprintf(w, "    %s, queue %s\n", started(j.Plan()), j.Queue)
	}
	for _, f := range a.Fields {
		before, after := differing(f.Old, f.New)
		fmt.Fprintf(w, "    %s: %s -> %s\n", printable.Clip(f.Name, base.WidestCell), before, after)
	}
	printSlots(w, a.Appear, a.Disappear)
	if a.Paused && len(a.Appear)+len(a.Disappear) > 0 {
		fmt.Fprintf(w, "    the job is paused: no slots until cronce job resume %s\n", a.Job)
	}
}

// started describes what starts a job.
func started(p job.Plan) string {
	if !p.Scheduled() {
		return p.Start()
	}
	return fmt.Sprintf("%q %s", p.Schedule, p.Timezone)
}

// printSlots lists the slots that appear and disappear, by time.
func printSlots(w io.Writer, appear, disappear []time.Time) {
	for len(appear)+len(disappear) > 0 {
		if len(disappear) == 0 || len(appear) > 0 && appear[0].Before(disappear[0]) {
			fmt.Fprintf(w, "    + %s\n", appear[0].Format(time.RFC3339))
			appear = appear[1:]
		} else {
			fmt.Fprintf(w, "    - %s\n", disappear[0].Format(time.RFC3339))
			disappear = disappear[1:]
		}
	}
}

// differing shortens two values for one line and keeps the part where they differ: long
// values may differ only at the end.
func differing(before, after json.RawMessage) (string, string) {
	const most, lead = 60, 10
	a, b := []rune(printable.Line(string(before))), []rune(printable.Line(string(after)))
	if len(a) <= most || len(b) <= most {
		return cmp.Or(base.Brief(string(a), most), "none"), cmp.Or(base.Brief(string(b), most), "none")
	}
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	cut := max(0, same-lead)
	mark := ""
	if cut > 0 {
		mark = "..."
	}
	return mark + base.Brief(string(a[cut:]), most), mark + base.Brief(string(b[cut:]), most)
}

// applySummary counts the rows: "1 created, 2 unchanged".
func applySummary(rows []row.Apply) string {
	count := map[string]int{}
	for _, a := range rows {
		count[a.Change]++
	}
	var words []string
	for _, change := range []string{"created", "updated", "removed", "unchanged", row.Failed, row.NotTried} {
		if n := count[change]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, strings.ReplaceAll(change, "_", " ")))
		}
	}
	return strings.Join(words, ", ")
}
