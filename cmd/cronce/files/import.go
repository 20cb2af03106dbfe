package files

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/jobfile/migrate"
	"github.com/cronce-io/cronce/internal/printable"
)

func NewImportCommand(a *base.App) *cobra.Command {
	return base.NewGroup("import", "Make a job file of a crontab or of Kubernetes CronJobs", newImportCrontabCommand(a), newImportKubernetesCommand(a))
}

const importStatus = `The file is written to stdout, for "cronce check" and for an editor. What it cannot say
is named on stderr with its line: exit status 3 when there is such a thing, 0 when all
was carried over. With -o json there is a line for each job and for each such thing:

  {"line":7,"job":"backup","schedule":"0 3 * * *","timezone":"Europe/Berlin","exec":["/bin/sh","-c","backup"]}
  {"line":9,"not_carried_over":"@reboot is no time; ..."}`

func newImportCrontabCommand(a *base.App) *cobra.Command {
	var zone string
	var system bool
	cmd := &cobra.Command{
		Use:   "crontab FILE",
		Short: "Make a job file of a crontab",
		Long: `Crontab reads a user's crontab (- is standard input), or a system one, which names a user
before each command: /etc/crontab and the files of /etc/cron.d are known to be such.
The jobs have the slots that cron would run them at, clock changes included, and are
named by their commands. Settings (PATH=..., SHELL=..., CRON_TZ=...) and what follows a
% are carried over; @reboot, MAILTO and random times (~) are not.

` + importStatus,
		Example: "  crontab -l | cronce import crontab - --tz Europe/Berlin >jobs.yaml\n  cronce import crontab /etc/crontab >jobs.yaml",
		Args:    base.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := readText(a, args[0])
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("system") {
				system = isSystemCrontab(args[0])
			}
			if !cmd.Flags().Changed("tz") {
				zone = localZone(a)
			}
			return printImported(a, args[0], migrate.CrontabHead, migrate.Crontab(string(text), zone, system))
		},
	}
	cmd.Flags().BoolVar(&system, "system", false, "a user's name stands before each command")
	cmd.Flags().StringVar(&zone, "tz", "", "time zone of the schedules (default: this machine's, if it says which, else UTC)")
	return cmd
}

func newImportKubernetesCommand(a *base.App) *cobra.Command {
	var zone string
	cmd := &cobra.Command{
		Use:   "k8s FILE",
		Short: "Make a job file of Kubernetes CronJobs",
		Long: `K8s reads manifests of CronJobs (- is standard input), several to a file or in a list, as
kubectl prints them. Schedule, timeZone, concurrencyPolicy, startingDeadlineSeconds,
backoffLimit, activeDeadlineSeconds and the container's command, arguments and written
variables are carried over; what else is in the pod, and suspend, are not. A container
without a command is none, for its image is not asked.

` + importStatus,
		Example: "  kubectl get cronjobs -o yaml | cronce import k8s - >jobs.yaml\n  cronce import k8s cronjob.yaml >jobs.yaml",
		Args:    base.Arguments(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := readText(a, args[0])
			if err != nil {
				return err
			}
			result, err := migrate.Kubernetes(text, zone)
			if err != nil {
				return base.Usage(fmt.Errorf("%s: %w", args[0], err))
			}
			return printImported(a, args[0], migrate.KubernetesHead, result)
		},
	}
	cmd.Flags().StringVar(&zone, "tz", "UTC", "time zone of schedules without timeZone: the controller manager's")
	return cmd
}

// readText reads a file, or standard input for "-".
func readText(a *base.App, path string) ([]byte, error) {
	in := a.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, base.Usage(err)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, migrate.MaxSize+1))
	if err == nil && len(text) > migrate.MaxSize {
		err = fmt.Errorf("%s: larger than %d MiB", path, migrate.MaxSize>>20)
	}
	return text, base.Usage(err)
}

func isSystemCrontab(path string) bool {
	path, err := filepath.Abs(path)
	return err == nil && (path == "/etc/crontab" || filepath.Dir(path) == "/etc/cron.d")
}

// localZone is the name of this machine's time zone, where it has one.
func localZone(a *base.App) string {
	if zone := a.Getenv("TZ"); zone != "" {
		return strings.TrimPrefix(zone, ":")
	}
	if target, err := filepath.EvalSymlinks("/etc/localtime"); err == nil {
		if _, zone, ok := strings.Cut(target, "zoneinfo/"); ok {
			return zone
		}
	}
	return "UTC"
}

// importedRow is a job, or what was not carried over.
type importedRow struct {
	Line           int      `json:"line,omitempty"`
	Job            string   `json:"job,omitempty"`
	Schedule       string   `json:"schedule,omitempty"`
	Timezone       string   `json:"timezone,omitempty"`
	Exec           []string `json:"exec,omitempty"`
	NotCarriedOver string   `json:"not_carried_over,omitempty"`
}

func printImported(a *base.App, path string, head []string, r migrate.Result) error {
	if len(r.Jobs) == 0 && len(r.Notes) == 0 {
		return base.Usage(fmt.Errorf("%s: there are no jobs in it", path))
	}
	var err error
	if a.Output == base.OutputJSON {
		err = printImportedRows(a, r)
	} else {
		err = printImportedFile(a, path, head, r)
	}
	if err != nil {
		return err
	}
	if n := len(r.Notes); n > 0 {
		return fmt.Errorf("%w: %d of the file's lines or settings are not carried over; %d jobs are", base.ErrFound, n, len(r.Jobs))
	}
	return nil
}

// printImportedFile prints the job file on stdout, with what a job lacks above it, and
// all that is lacking on stderr. A file without jobs would be none.
func printImportedFile(a *base.App, path string, head []string, r migrate.Result) error {
	lacks := map[string][]string{}
	for _, n := range r.Notes {
		where := fmt.Sprintf("%s:%d: ", path, n.Line)
		if n.Job != "" {
			where += "job " + n.Job + ": "
			lacks[n.Job] = append(lacks[n.Job], n.Text)
		}
		fmt.Fprintln(a.Stderr, printable.Clip(where+n.Text, 1000))
	}
	if len(r.Jobs) == 0 {
		return nil
	}
	for i, j := range r.Jobs {
		r.Jobs[i].Comments = append(j.Comments, lacks[j.Job.Name]...)
	}
	text, err := jobfile.FormatImported(head, r.Jobs)
	if err != nil {
		return err
	}
	_, err = a.Stdout.Write(text)
	return err
}

func printImportedRows(a *base.App, r migrate.Result) error {
	var rows []importedRow
	for _, j := range r.Jobs {
		rows = append(rows, importedRow{Line: j.Line, Job: j.Job.Name, Schedule: j.Job.Schedule, Timezone: j.Job.Timezone, Exec: j.Exec})
	}
	for _, n := range r.Notes {
		rows = append(rows, importedRow{Line: n.Line, Job: n.Job, NotCarriedOver: n.Text})
	}
	slices.SortStableFunc(rows, func(a, b importedRow) int { return cmp.Compare(a.Line, b.Line) })
	return base.PrintLines(a, slices.Values(rows))
}
