package files

import (
	"cmp"
	"context"
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
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/internal/schedule/misread"
	"github.com/cronce-io/cronce/internal/schedule/tzdata"
	"github.com/cronce-io/cronce/internal/text/plain"
	"github.com/cronce-io/cronce/internal/text/printable"
)

func NewImportCommand(a *base.App) *cobra.Command {
	commands := []*cobra.Command{newImportCrontabCommand(a), newImportSystemdCommand(a)}
	for _, f := range importFormats {
		commands = append(commands, f.command(a))
	}
	group := base.NewGroup("import", "Convert the jobs of another scheduler to a job file", commands...)
	group.Long = `Import reads the configuration of another scheduler, and prints a job file with the same slots.
For the schedules of Celery beat and APScheduler there are scripts, which you run where your
program runs, because they ask the library itself: celery_beat.py and apscheduler_jobs.py of
` + scripts
	return group
}

// scripts is the folder of the scripts for schedulers that are libraries of Python.
const scripts = "https://github.com/cronce-io/cronce/tree/main/examples/migrate"

const importStatus = `The job file goes to stdout: check it with "cronce check" and edit it. Settings that a
job file cannot express go to stderr, each with its line. The exit status is 3 if there
is such a setting, and 0 if everything was carried over. With -o json there is one line
for each job and for each setting that was not carried over:

  {"line":7,"job":"backup","schedule":"0 3 * * *","timezone":"Europe/Berlin","exec":["/bin/sh","-c","backup"],
   "env":{"PATH":"/bin"},"dir":"~","user":"backup"}
  {"line":9,"not_carried_over":"not carried over: @reboot is not a time: ..."}`

func newImportCrontabCommand(a *base.App) *cobra.Command {
	var zone string
	var system, shadow bool
	cmd := &cobra.Command{
		Use:   "crontab FILE",
		Short: "Convert a crontab to a job file",
		Long: `Crontab reads a user's crontab (- is standard input), or a system crontab, which names a
user before each command. /etc/crontab and the files of /etc/cron.d are read as system
crontabs. The jobs get the slots at which cron would run them, clock changes included,
and are named after their commands. Users, home directories, settings (PATH=..., SHELL=...,
CRON_TZ=...) and the text after a % are carried over; @reboot, MAILTO and random times (~)
are not.

` + importStatus,
		Example: "  crontab -l | cronce import crontab - --tz Europe/Berlin >jobs.yaml\n  cronce import crontab /etc/crontab >jobs.yaml",
		Args:    base.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkZone(cmd, zone); err != nil {
				return err
			}
			text, err := readText(cmd.Context(), a, args[0])
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("system") {
				system = isSystemCrontab(args[0])
			}
			if zone == "" {
				zone = localZone(a)
			}
			head := crontabHead
			if system {
				head = append(slices.Clone(head), "Jobs with user need a worker that runs as root. If the worker runs as that user, leave user out.")
			}
			return printImported(a, args[0], head, migrate.Crontab(string(text), zone, system), shadow)
		},
	}
	cmd.Flags().BoolVar(&system, "system", false, "a user's name precedes each command")
	cmd.Flags().StringVar(&zone, "tz", "", "time zone of the schedules (default: this machine's if known, else UTC)")
	addShadow(cmd, &shadow)
	return cmd
}

func addShadow(cmd *cobra.Command, shadow *bool) {
	cmd.Flags().BoolVar(shadow, "shadow", false, "write shadow: true: slots are claimed and recorded, and commands do not run")
}

// crontabHead is the comment at the top of the file: what is the same as under cron, and what is not.
var crontabHead = []string{
	"Imported from a crontab. As under cron, runs of a job may overlap, they are not retried, and",
	"missed runs are not caught up. Leave out overlap, retry and catch_up for Cronce's defaults: one",
	"run at a time, three attempts, and the newest missed slot is run.",
}

// shadowHead is the comment above the jobs of a file of shadows.
var shadowHead = []string{
	"Shadows: the slots of these jobs are claimed and recorded, and their commands do not run.",
	`Compare them with the old scheduler's log ("cronce verify --against LOG"), then remove each`,
	`"shadow: true" when you take its job out of the old scheduler.`,
}

// readText reads a file, or standard input for "-".
func readText(ctx context.Context, a *base.App, path string) ([]byte, error) {
	text, err := base.ReadUntil(ctx, func() ([]byte, error) {
		in := a.Stdin
		if path != "-" {
			f, err := os.Open(path)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			in = f
		}
		return io.ReadAll(io.LimitReader(in, migrate.MaxSize+1))
	})
	if err == nil && len(text) > migrate.MaxSize {
		err = fmt.Errorf("%s: larger than %d MiB", path, migrate.MaxSize>>20)
	}
	if err != nil {
		return nil, base.Usage(err)
	}
	plainText, err := plain.Text(text)
	if err != nil {
		return nil, base.Usage(fmt.Errorf("%s: %w", path, err))
	}
	return []byte(plainText), nil
}

func isSystemCrontab(path string) bool {
	path, err := filepath.Abs(path)
	return err == nil && (path == "/etc/crontab" || filepath.Dir(path) == "/etc/cron.d")
}

// checkZone returns a usage error if --tz is given and names no zone.
func checkZone(cmd *cobra.Command, zone string) error {
	if !cmd.Flags().Changed("tz") {
		return nil
	}
	if _, err := tzdata.Load(zone); err != nil {
		return base.Usage(fmt.Errorf("--tz: %w", err))
	}
	return nil
}

// localZone is the name of this machine's time zone, or UTC.
func localZone(a *base.App) string {
	zone := strings.TrimPrefix(a.Getenv("TZ"), ":")
	if zone == "" {
		zone, _ = filepath.EvalSymlinks("/etc/localtime")
	}
	if _, name, isFile := strings.Cut(zone, "zoneinfo/"); isFile {
		zone = name
	}
	if _, err := tzdata.Load(zone); err != nil {
		if a.Getenv("TZ") != "" {
			a.Log.Warn("TZ names no time zone of the IANA: schedules without one are in UTC; --tz names another", "tz", a.Getenv("TZ"))
		}
		return "UTC"
	}
	return zone
}

// importedRow is a job, or a setting that was not carried over.
type importedRow struct {
	File           string            `json:"file,omitempty"`
	Line           int               `json:"line,omitempty"`
	Job            string            `json:"job,omitempty"`
	Schedule       string            `json:"schedule,omitempty"`
	Timezone       string            `json:"timezone,omitempty"`
	Exec           []string          `json:"exec,omitempty"`
	Env            map[string]string `json:"env,omitempty"`
	Dir            string            `json:"dir,omitempty"`
	User           string            `json:"user,omitempty"`
	Group          string            `json:"group,omitempty"`
	Shadow         bool              `json:"shadow,omitempty"`
	NotCarriedOver string            `json:"not_carried_over,omitempty"`
}

func printImported(a *base.App, path string, head []string, r migrate.Result, shadow bool) error {
	if len(r.Jobs) == 0 && len(r.Notes) == 0 {
		return base.Usage(fmt.Errorf("%s: no jobs found", path))
	}
	if shadow {
		head = slices.Concat(head, shadowHead)
		for i := range r.Jobs {
			r.Jobs[i].Shadow = true
		}
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
	warnOfImported(a, path, r)
	if n := len(r.Notes); n > 0 {
		return fmt.Errorf("%w: %d lines or settings were not carried over; %d jobs were", base.ErrFound, n, len(r.Jobs))
	}
	return nil
}

// warnOfImported prints which schedules are often misread. They do not change the status.
func warnOfImported(a *base.App, path string, r migrate.Result) {
	for _, j := range r.Jobs {
		for _, w := range misread.Of(j.Job.Name, j.Job.Plan()) {
			fmt.Fprintln(a.Stderr, printable.Clip(fmt.Sprintf("%s:%d: job %s: warning: %s", cmp.Or(j.File, path), j.Line, j.Job.Name, w), 1000))
		}
	}
}

// printImportedFile prints the job file on stdout and the notes on stderr. The notes of a
// job also stand above it, as comments. Without jobs it prints no file, because a file
// without jobs is not valid.
func printImportedFile(a *base.App, path string, head []string, r migrate.Result) error {
	type position struct {
		job  string
		line int
	}
	// A job that was not carried over may have the name of one that was, so the name is not enough.
	notes := map[position][]string{}
	for _, n := range r.Notes {
		where := fmt.Sprintf("%s:%d: ", cmp.Or(n.File, path), n.Line)
		if n.Job != "" {
			where += "job " + n.Job + ": "
			of := position{n.Job, cmp.Or(n.Of, n.Line)}
			notes[of] = append(notes[of], n.Text)
		}
		fmt.Fprintln(a.Stderr, printable.Clip(where+n.Text, 1000))
	}
	if len(r.Jobs) == 0 {
		return nil
	}
	for i, j := range r.Jobs {
		r.Jobs[i].Comments = append(j.Comments, notes[position{j.Job.Name, j.Line}]...)
	}
	text, err := jobfile.FormatImported(head, r.Jobs)
	if err != nil {
		return err
	}
	_, err = a.Stdout.Write(text)
	return err
}

func byName(env []spec.Variable) map[string]string {
	values := map[string]string{}
	for _, v := range env {
		values[v.Name] = v.Value
	}
	return values
}

func printImportedRows(a *base.App, r migrate.Result) error {
	var rows []importedRow
	for _, j := range r.Jobs {
		rows = append(rows, importedRow{File: j.File, Line: j.Line, Job: j.Job.Name, Schedule: j.Job.Schedule, Timezone: j.Job.Timezone, Exec: j.Exec.Args, Env: byName(j.Exec.Env), Dir: j.Exec.Dir, User: j.Exec.User, Group: j.Exec.Group, Shadow: j.Shadow})
	}
	for _, n := range r.Notes {
		rows = append(rows, importedRow{File: n.File, Line: n.Line, Job: n.Job, NotCarriedOver: n.Text})
	}
	order := map[string]int{} // of the files
	for _, r := range rows {
		if _, ok := order[r.File]; !ok {
			order[r.File] = len(order)
		}
	}
	slices.SortStableFunc(rows, func(a, b importedRow) int {
		return cmp.Or(cmp.Compare(order[a.File], order[b.File]), cmp.Compare(a.Line, b.Line))
	})
	return base.PrintLines(a, slices.Values(rows))
}

func newImportSystemdCommand(a *base.App) *cobra.Command {
	var zone string
	var shadow bool
	cmd := &cobra.Command{
		Use:   "systemd FILE...",
		Short: "Convert timers of systemd to a job file",
		Long: `Systemd reads timers and the services that they start: the output of "systemctl cat"
(- is standard input), which has the drop-ins too, or unit files. With a timer's file,
import reads the service that it starts, and with each unit its drop-ins
(NAME.timer.d/*.conf): from the folder of the file, or, if that is a folder of systemd,
from all of them. Each OnCalendar becomes a job with the same slots, clock
changes included; OnUnitActiveSec becomes @every. Persistent becomes catch_up,
RandomizedDelaySec becomes spread. Of the service, ExecStart, User, Group,
WorkingDirectory, Environment and the time limit are carried over; its sandbox, its
dependencies and everything else are not.

` + importStatus,
		Example: "  systemctl cat backup.timer backup.service | cronce import systemd - >jobs.yaml\n  cronce import systemd /etc/systemd/system/*.timer >jobs.yaml",
		Args:    base.Arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkZone(cmd, zone); err != nil {
				return err
			}
			units, err := readUnits(cmd.Context(), a, args)
			if err != nil {
				return err
			}
			if zone == "" {
				zone = localZone(a)
			}
			return printImported(a, args[0], systemdHead, migrate.Systemd(units, zone), shadow)
		},
	}
	cmd.Flags().StringVar(&zone, "tz", "", "time zone of expressions that name none (default: this machine's if known, else UTC)")
	addShadow(cmd, &shadow)
	return cmd
}

// systemdHead is the comment at the top of the file: what is the same as under systemd, and what is not.
var systemdHead = []string{
	"Imported from timers of systemd. As under systemd, a job does not start during its previous run,",
	"and runs are not retried. Commands have the environment of \"cronce run\". Put the sandbox settings",
	"of the unit into the unit of \"cronce run\". Jobs with user need a worker that runs as root. If the",
	"worker runs as that user, leave user out.",
}
