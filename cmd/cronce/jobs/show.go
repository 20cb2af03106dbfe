package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/cmd/cronce/slots"
	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/schedule/tzdata"
	"github.com/cronce-io/cronce/internal/text/printable"
)

func newJobShowCommand(a *base.App) *cobra.Command {
	var asFile bool
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show everything that is known about a job",
		Long: `Show prints everything that is known about one job: its definition in the registry, its
last writer and its owner, its earlier schedules, its pauses and what resuming it would
run, the live nodes that would run it, its next slots, and its newest slots that have a
record. A definition that cannot be read is shown as broken. Such a job has no slots
and does not affect other jobs. To repair it, apply or remove the job.

--file prints the definition as a job file, which you can edit and apply. Like the
registry, it has no action.

With -o json, one line. definition and plan are as in docs/protocol.md; in plans, pauses
and last the newest entry comes last; paused is the current pause; last is as in
"slot ls", without output. Absent values are omitted:

  {"job":"report","revision":12,"written":"2026-11-20T09:00:00Z","owner":"operator","node":"alice@laptop",
   "definition":{"name":"report","queue":"default",...,"plan":{"schedule":"0 7 * * *",...}},
   "plans":[{"from":"2026-11-01T12:00:00Z","to":"2026-11-20T09:00:00Z","plan":{"schedule":"0 6 * * *",...}},
   {"from":"2026-11-20T09:00:00Z","plan":{"schedule":"0 7 * * *",...}}],
   "paused":{"since":"2026-11-20T10:00:00Z","missed":1,"runs":1},"pauses":[{"from":"2026-11-20T10:00:00Z"}],
   "handlers":["web1-711-0kq1-x2"],"next":["2026-11-22T07:00:00Z"],
   "last":[{"id":"report:2026-11-20T06:00:00Z",...,"state":"succeeded",...}]}`,
		Example: `  cronce job show report
  cronce job show report -o json | jq .definition
  cronce job show report --file > report.yaml   # edit it, and then:
  cronce job apply -f report.yaml`,
		Args: base.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if asFile && a.Output == base.OutputJSON {
				return base.Try(base.Usage(errors.New("--file and -o json exclude each other")), "cronce job show --help")
			}
			return a.OnJob(cmd.Context(), "job show", args[0], func(ctx context.Context, r base.Session, name string) error {
				if asFile {
					return showFile(ctx, r, name)
				}
				return show(ctx, r, name)
			})
		},
	}
	cmd.Flags().BoolVar(&asFile, "file", false, "print the definition as a job file")
	return cmd
}

// showFile prints the job as a file. Its first line has the revision for apply, so that
// an edit in between is not overwritten.
func showFile(ctx context.Context, r base.Session, name string) error {
	e, _, err := r.Jobs().Read(ctx, name)
	if err != nil {
		return err
	}
	text, err := jobfile.Format(e.Job)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(r.Stdout, "# to change the job only if it has not changed since: cronce job apply -f FILE --revision %d\n%s", e.Revision, text)
	return err
}

func show(ctx context.Context, r base.Session, name string) error {
	d, err := r.Client().Job(ctx, name)
	if err != nil {
		return err
	}
	if r.Output == base.OutputJSON {
		return r.PrintJSON(d)
	}
	return printDetails(r, d)
}

func printDetails(r base.Session, d client.JobDetails) error {
	out := base.NewTable(r.Stdout)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%s\t%s\n", name, printable.Clip(fmt.Sprintf(format, args...), 1000))
	}
	stamp := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	line("job", "%s", d.Job.Name)
	if d.Broken != nil {
		line("broken", "%s", base.OneLine(d.Broken))
		line("written", "%s, revision %d", stamp(d.Written), d.Revision)
	} else {
		line("owner", "%s", d.Owner)
		line("written", "%s by %s, revision %d", stamp(d.Written), d.By, d.Revision)
		all, err := client.Describe(d.Job)
		if err != nil {
			return err
		}
		for _, f := range all {
			if f.Name != "name" {
				line("  "+printable.Clip(f.Name, base.WidestCell), "%s", base.Brief(string(f.New), 200))
			}
		}
		for i, p := range d.Plans {
			until := "on"
			if i < len(d.Plans)-1 {
				until = "to " + stamp(p.To)
			}
			line("plan", "%s, for slots after %s %s", started(p.Plan), stamp(p.From), until)
		}
		for _, p := range d.Pauses {
			if !p.To.IsZero() {
				line("was paused", "from %s to %s", stamp(p.From), stamp(p.To))
			}
		}
		if d.Paused {
			line("paused", "since %s: %s if you resume it now", stamp(d.PausedSince()), missed(d.Job, d.Missed, d.Runs))
		}
		printHandlersAndNext(line, d)
	}
	if err := out.Flush(); err != nil || len(d.Last) == 0 {
		return err
	}
	fmt.Fprintln(r.Stdout)
	return base.PrintRows(r.App, d.Last, "", slots.SlotHeader, slots.SlotCells)
}

func printHandlersAndNext(line func(name, format string, args ...any), d client.JobDetails) {
	if len(d.Handlers) == 0 {
		line("handlers", "none: no live node runs this job")
	}
	for _, name := range d.Handlers {
		line("handler", "%s", name)
	}
	zone, err := tzdata.Load(d.Job.WithDefaults().Timezone)
	if err != nil {
		zone = time.UTC // unreachable: the zone was validated
	}
	for _, at := range d.Next {
		line("next", "%s (%s)", at.Format(time.RFC3339), at.In(zone).Format("Mon 15:04:05 MST"))
	}
	switch {
	case d.Broken == nil && !d.Job.Plan().Scheduled():
		line("next", "%s", d.Job.Plan().Start())
	case len(d.Next) == 0 && !d.Paused:
		line("next", "never again")
	}
}
