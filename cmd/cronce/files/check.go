// Package files holds the commands that need only a file: "cronce check" and
// "cronce import".
package files

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/action/execaction"
	"github.com/cronce-io/cronce/internal/jobfile/reference"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/internal/schedule/misread"
	"github.com/cronce-io/cronce/job"
)

const (
	// checkSlots is how many coming slots of each job are shown.
	checkSlots = 3

	// checkRows is the largest number of jobs in the table.
	checkRows = 200
)

func NewCheckCommand(a *base.App) *cobra.Command {
	var schema bool
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a job file and list each job's next slots",
		Long: `Check reads a job file (- is standard input) and lists each job's next slots. It needs
no server. It reports every mistake with its line; the status is then 2.

With -o json it prints one line for each job, in the order of the file. next has up to
three instants in UTC and is empty if the job has no more slots. warnings lists problems
that do not make the file invalid, and is omitted if there are none. "shadow":true marks
a job whose action does not run:

  {"job":"report","schedule":"0 7 * * *","timezone":"Europe/Berlin","queue":"default","next":["2026-11-22T06:00:00Z"]}

The table shows the first 200 jobs of a larger file. Check warns if a job that
"after" names is not in the file, if a program, a user or a folder is not on this machine,
and of schedules that are often misread. Warnings do not change the status.

With --schema and no file it prints the JSON Schema of job files. Editors use it to
complete names and to mark mistakes.`,
		Example: "  cronce check jobs.yaml\n  generate-jobs | cronce check -\n  cronce check --schema > jobs.schema.json",
		Args: base.Arguments(func(cmd *cobra.Command, args []string) error {
			if schema {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.ExactArgs(1)(cmd, args)
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			if schema && a.Output == base.OutputJSON {
				return a.PrintJSON(json.RawMessage(reference.Schema()))
			}
			if schema {
				_, err := a.Stdout.Write(reference.Schema())
				return err
			}
			file, err := a.ReadJobFile(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			checks, err := checkJobs(cmd.Context(), file, a.Now())
			if err != nil {
				return err
			}
			if a.Output == base.OutputJSON {
				return base.PrintLines(a, slices.Values(checks))
			}
			warnOfChecked(a, checks)
			return printChecks(a, file.Path, checks)
		},
	}
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON Schema of job files")
	return cmd
}

// checkedJob is a job and its next slots, oldest first.
type checkedJob struct {
	Job      string      `json:"job"`
	Schedule string      `json:"schedule"`
	After    []string    `json:"after,omitempty"`
	On       job.On      `json:"on,omitzero"`
	Timezone string      `json:"timezone"`
	Queue    string      `json:"queue"`
	Next     []time.Time `json:"next"`
	Shadow   bool        `json:"shadow,omitempty"`
	Warnings []string    `json:"warnings,omitempty"`

	zone  *time.Location
	start string // description of what starts the job
	line  int
}

func checkJobs(ctx context.Context, file *spec.File, now time.Time) ([]checkedJob, error) {
	checks, warnings := make([]checkedJob, len(file.Jobs)), checkWarnings(file)
	for i, entry := range file.Jobs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		j := entry.Job.WithDefaults()
		schedule, err := job.ParseSchedule(j.Name, j.Plan())
		if err != nil {
			return nil, base.Usage(err)
		}
		next := make([]time.Time, 0, checkSlots)
		for t := schedule.Next(now); !t.IsZero() && len(next) < checkSlots; t = schedule.Next(t) {
			next = append(next, t.UTC())
		}
		checks[i] = checkedJob{j.Name, j.Schedule, j.After, j.On, j.Timezone, j.Queue, next, entry.Shadow, warnings[i], schedule.Location(), j.Plan().Start(), entry.Line}
	}
	return checks, nil
}

func printChecks(a *base.App, path string, checks []checkedJob) error {
	out := bufio.NewWriter(a.Stdout) // a table writes cell by cell
	w := base.NewTable(out)
	fmt.Fprintln(w, "JOB\tSCHEDULE\tTIMEZONE\tNEXT, LOCAL\tNEXT, UTC")
	for _, c := range checks[:min(len(checks), checkRows)] {
		name := c.Job
		if c.Shadow {
			name += " (shadow)"
		}
		head := fmt.Sprintf("%s\t%s\t%s", name, c.start, c.Timezone)
		if !(job.Plan{Schedule: c.Schedule}).Scheduled() {
			fmt.Fprintf(w, "%s\t%s\t-\t-\t-\n", name, c.start)
			continue
		}
		if len(c.Next) == 0 {
			fmt.Fprintf(w, "%s\tnever again\t-\n", head)
		}
		for _, t := range c.Next {
			fmt.Fprintf(w, "%s\t%s\t%s\n", head, t.In(c.zone).Format(time.RFC3339), t.Format(time.RFC3339))
			head = "\t\t"
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if more := len(checks) - checkRows; more > 0 {
		fmt.Fprintf(out, "and %d more, which -o json lists\n", more)
	}
	fmt.Fprintf(out, "\n%s is valid: %s\n", path, base.Plural(len(checks), "job"))
	return out.Flush()
}

// checkWarnings lists, for each job in the file's order, problems that do not make the
// file invalid: a job in "after" is not in the file, or a program, a user or a folder is not on
// this machine.
func checkWarnings(file *spec.File) [][]string {
	names := make(map[string]bool, len(file.Jobs))
	for _, e := range file.Jobs {
		names[e.Job.Name] = true
	}
	missing := map[string]error{}
	find := func(e spec.Exec) error {
		key := fmt.Sprintf("%q", []string{e.Args[0], e.Dir, e.User, e.Group, e.Path()})
		err, known := missing[key]
		if !known {
			err = execaction.Missing(e)
			missing[key] = err
		}
		return err
	}
	warnings := make([][]string, len(file.Jobs))
	for i, e := range file.Jobs {
		for _, name := range e.Job.After {
			if !names[name] {
				warnings[i] = append(warnings[i], fmt.Sprintf("after: no job %q is in this file; if it is not in the registry either, this job never starts", name))
			}
		}
		warnings[i] = append(warnings[i], misread.Of(e.Job.Name, e.Job.Plan())...)
		if e.Action.Exec != nil {
			warnings[i] = append(warnings[i], shellSyntax(e.Action.Exec.Args)...)
			if err := find(*e.Action.Exec); err != nil {
				warnings[i] = append(warnings[i], fmt.Sprintf("exec: %v: on a machine without it every attempt fails", err))
			}
		}
	}
	return warnings
}

// shellSyntax warns of arguments that only a shell reads, such as $HOME and >, if no shell runs.
func shellSyntax(args []string) []string {
	switch path.Base(args[0]) {
	case "sh", "bash", "dash", "zsh", "ksh", "ash", "busybox", "env", "ssh", "awk", "perl", "python3":
		return nil
	}
	for _, arg := range args[1:] {
		if slices.Contains([]string{"|", ">", ">>", "<", "&&", "||", ";", "&", "2>&1"}, arg) || shellVariable.MatchString(arg) {
			return []string{fmt.Sprintf("exec: the argument %q is passed as it is, since no shell runs: for a shell, write [sh, -c, \"...\"]", arg)}
		}
	}
	return nil
}

var shellVariable = regexp.MustCompile(`^\$(\{[A-Za-z_][A-Za-z0-9_]*\}|[A-Za-z_][A-Za-z0-9_]*|\(.*\))$`)

// warnOfChecked logs the first ten warnings and counts the others.
func warnOfChecked(a *base.App, checks []checkedJob) {
	logged, more := 0, 0
	for _, c := range checks {
		for _, w := range c.Warnings {
			if logged == base.MostNamed {
				more++
				continue
			}
			logged++
			a.Log.Warn("this job is valid, but look at it again", "job", c.Job, "line", c.line, "warning", w)
		}
	}
	if more > 0 {
		a.Log.Warn("more warnings; to see all: cronce check FILE -o json", "count", more)
	}
}
