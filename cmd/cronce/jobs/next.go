package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/api/row"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/internal/schedule/misread"
	"github.com/cronce-io/cronce/job"
)

type nextFlags struct {
	file, name   string
	timezone     string
	gap, overlap string
	from, until  base.Time
	count        int
}

func NewNextCommand(a *base.App) *cobra.Command {
	var f nextFlags
	cmd := &cobra.Command{
		Use:   "next 'SPEC' | -f FILE",
		Short: "List the coming slots of a schedule or of a job file",
		Long: `Next lists the slots of a schedule, or of the jobs in a file, strictly after --from
and before --until, at most --count in all. It needs no server. The result depends
only on the arguments: every node computes the same slots.

SPEC is five cron fields, six with seconds first, a name like @hourly, "@every 90s" or
"@at 2027-01-01T00:00:00Z". H in a field is a stable hash of --name.

With -o json it prints one line for each slot, and with -f also the job's name:

  {"slot":"2026-03-29T01:00:00Z","local":"2026-03-29T03:00:00+02:00"}`,
		Example: `  cronce next '30 2 * * *' --tz Europe/Berlin --from 2026-03-27T00:00:00Z --count 4
  cronce next 'H * * * *' --name report
  cronce next -f jobs.yaml --name report -o json`,
		Args: base.Arguments(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd, args); err != nil {
				return base.Try(base.Usage(err), "cronce next --help")
			}
			schedules, err := nextSchedules(cmd.Context(), a, f, args)
			if err != nil {
				return err
			}
			now := a.Now()
			return printNext(a, schedules.slots(f, cmp.Or(f.from.Time, now)), f, now)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "file", "f", "", "job `file` in place of SPEC (- is standard input)")
	flags.StringVar(&f.name, "name", "", "`job` whose name H hashes; with -f, list only this job")
	flags.StringVar(&f.timezone, "tz", "", "IANA time `zone` (default UTC)")
	flags.StringVar(&f.gap, "dst-gap", "", "`when` to run at a wall time that the clocks skip: after the gap, or skip (default after)")
	flags.StringVar(&f.overlap, "dst-overlap", "", "`when` to run at a wall time that occurs twice: first, second or both (default first)")
	f.addTimes(cmd)
	base.Complete(cmd, "dst-gap", string(job.GapAfter), string(job.GapSkip))
	base.Complete(cmd, "dst-overlap", string(job.RepeatFirst), string(job.RepeatSecond), string(job.RepeatBoth))
	return cmd
}

func (f *nextFlags) addTimes(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&f.from, "from", "list slots strictly after this RFC 3339 `time` (default now)")
	flags.Var(&f.until, "until", "list slots before this RFC 3339 `time`")
	flags.IntVar(&f.count, "count", 10, "list at most `N` slots")
}

func (f nextFlags) check(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 1 && f.file != "":
		return errors.New("SPEC and -f exclude each other")
	case len(args) == 0 && f.file == "":
		return errors.New("next needs a SPEC, in quotes, or -f FILE")
	}
	for _, name := range []string{"tz", "dst-gap", "dst-overlap"} {
		if f.file != "" && cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s needs a SPEC: in a file each job sets its own", name)
		}
	}
	return cmp.Or(codec.ValidateJobFilter(f.name), f.checkCount())
}

func (f nextFlags) checkCount() error {
	if f.count < 1 {
		return fmt.Errorf("invalid --count %d: must be at least 1", f.count)
	}
	return nil
}

// namedSchedule is a schedule with the name of its job. The name is empty for a SPEC.
type namedSchedule struct {
	job string
	*job.Schedule
}

type schedules []namedSchedule

// nextSchedules compiles the schedules that the arguments name. Every error is wrong usage.
func nextSchedules(ctx context.Context, a *base.App, f nextFlags, args []string) (schedules, error) {
	if f.file == "" {
		return f.compile(a, args[0])
	}
	file, err := a.ReadJobFile(ctx, f.file)
	if err != nil {
		return nil, err
	}
	return compile(file, f.name)
}

func (f nextFlags) compile(a *base.App, spec string) (schedules, error) {
	plan := job.Plan{Schedule: spec, Timezone: f.timezone, DSTGap: job.GapPolicy(f.gap), DSTOverlap: job.RepeatPolicy(f.overlap)}
	s, err := job.ParseSchedule(f.name, plan)
	if err == nil {
		for _, warning := range misread.Of(f.name, plan) {
			a.Log.Warn("this schedule is often misread", "warning", warning)
		}
		return schedules{{"", s}}, nil
	}
	err = base.Usage(base.OneLine(err))
	if f.name == "" {
		if _, withName := job.ParseSchedule("any", plan); withName == nil {
			err = base.Try(err, "--name JOB")
		}
	}
	return nil, err
}

// compile compiles the schedules of a file. If only is not empty, it takes that job alone.
func compile(file *spec.File, only string) (schedules, error) {
	var all schedules
	for _, e := range file.Jobs {
		if only != "" && e.Job.Name != only {
			continue
		}
		s, err := job.ParseSchedule(e.Job.Name, e.Job.Plan())
		if err != nil {
			return nil, base.Usage(base.OneLine(err))
		}
		all = append(all, namedSchedule{e.Job.Name, s})
	}
	if len(all) == 0 {
		return nil, base.Try(base.Usage(fmt.Errorf("%s has no job %q", file.Path, only)), "cronce check "+file.Path)
	}
	return all, nil
}

// slots merges the schedules by time. Slots of the same instant keep the file's order.
func (all schedules) slots(f nextFlags, after time.Time) iter.Seq[row.Next] {
	return func(yield func(row.Next) bool) {
		heads := make([]time.Time, len(all))
		for i, s := range all {
			heads[i] = s.Next(after)
		}
		for range f.count {
			first := -1
			for i, head := range heads {
				if !head.IsZero() && (first < 0 || head.Before(heads[first])) {
					first = i
				}
			}
			if first < 0 || !f.until.IsZero() && !heads[first].Before(f.until.Time) {
				return
			}
			s, at := all[first], heads[first]
			if !yield(row.Next{Job: s.job, Slot: at.UTC(), Local: at.In(s.Location())}) {
				return
			}
			heads[first] = s.Next(at)
		}
	}
}

func printNext(a *base.App, slots iter.Seq[row.Next], f nextFlags, now time.Time) error {
	if a.Output == base.OutputJSON {
		return base.PrintLines(a, slots)
	}
	w := base.NewTable(a.Stdout)
	header := "LOCAL\tUTC\tWHEN"
	if f.file != "" {
		header = "JOB\t" + header
	}
	none := true
	for s := range slots {
		if none {
			fmt.Fprintln(w, header)
			none = false
		}
		if f.file != "" {
			fmt.Fprintf(w, "%s\t", s.Job)
		}
		fmt.Fprintf(w, "%s\t%s\t%s%s\n", s.Local.Format("Mon 2006-01-02 15:04:05 MST"), s.Slot.Format(time.RFC3339), base.Relative(s.Slot, now), clockChange(s.Local))
	}
	if none {
		fmt.Fprintln(w, "no slots")
	}
	return w.Flush()
}

// clockChange marks a slot on a day on which its zone changes the clocks.
func clockChange(local time.Time) string {
	y, m, d := local.Date()
	atEndOf := func(day int) int { // midnight itself may not exist
		_, offset := time.Date(y, m, day, 23, 59, 59, 0, local.Location()).Zone()
		return offset
	}
	switch change := time.Duration(atEndOf(d)-atEndOf(d-1)) * time.Second; {
	case change > 0:
		return fmt.Sprintf("\tclocks go forward %s this day", base.Span(change))
	case change < 0:
		return fmt.Sprintf("\tclocks go back %s this day", base.Span(-change))
	}
	return ""
}

func newJobNextCommand(a *base.App) *cobra.Command {
	var f nextFlags
	cmd := &cobra.Command{
		Use:   "next NAME",
		Short: "List the coming slots of a job in the registry",
		Long: `Next lists the slots of a job in the registry, strictly after --from and before
--until, at most --count. For a paused job it lists the slots that the job would have
without the pause, and warns. For a job that is not in the registry, use cronce next.

With -o json it prints a line for each slot:

  {"slot":"2026-03-29T01:00:00Z","local":"2026-03-29T03:00:00+02:00"}`,
		Example: "  cronce job next report --count 3",
		Args:    base.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.checkCount(); err != nil {
				return base.Try(base.Usage(err), "cronce job next --help")
			}
			return a.OnJob(cmd.Context(), "job next", args[0], func(ctx context.Context, r base.Session, name string) error {
				return nextOf(ctx, r, name, f)
			})
		},
	}
	f.addTimes(cmd)
	return cmd
}

func nextOf(ctx context.Context, r base.Session, name string, f nextFlags) error {
	coming, err := r.Client().Next(ctx, name)
	if err != nil {
		return err
	}
	if !coming.Job.Plan().Scheduled() {
		r.Log.Warn("job has no schedule, so no slots of its own", "job", name, "starts", coming.Job.Plan().Start())
	}
	if coming.Paused {
		r.Log.Warn("job is paused: these slots are published only if it is resumed", "job", name, "since", coming.PausedSince(), "resume", "cronce job resume "+name)
	}
	return printNext(r.App, row.Coming(coming, f.from.Time, f.until.Time, f.count), f, coming.Now)
}
