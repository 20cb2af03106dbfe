package files

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/jobfile/migrate"
)

// importFormat is a format of a single file, whose schedules are in one time zone unless they
// name another.
type importFormat struct {
	name, short, long, example string

	// zone is the default of --tz, and zoneOf completes its help: "time zone of".
	zone, zoneOf string

	head []string // the comment at the top of the file: what is the same as before, and what is different
	read func(text []byte, zone string) (migrate.Result, error)

	// readFile replaces read if the format fixes the zone.
	readFile func(text []byte, path string) (migrate.Result, error)
}

var importFormats = []importFormat{
	{
		name: "k8s", short: "Convert Kubernetes CronJobs to a job file",
		long: `K8s reads CronJob manifests (- is standard input): several in a file, or a list as
kubectl prints it. Schedule, timeZone, concurrencyPolicy, startingDeadlineSeconds,
backoffLimit, activeDeadlineSeconds and the container's command, arguments and literal
variables are carried over; suspend and the rest of the pod are not. A container without
a command is not carried over, because import does not read its image.`,
		example: "  kubectl get cronjobs -o yaml | cronce import k8s - >jobs.yaml\n  cronce import k8s cronjob.yaml >jobs.yaml",
		zone:    "UTC", zoneOf: "schedules without timeZone: that of the controller manager",
		head: []string{
			"Imported from Kubernetes CronJobs. Commands start on the machine of \"cronce run\", not in",
			"a container of their image: run the worker from that image, or call the service (action: http).",
		}, read: migrate.Kubernetes,
	},
	{
		name: "sidekiq", short: "Convert a Sidekiq schedule to a job file",
		long: `Sidekiq reads the YAML of sidekiq-cron (a mapping or a list of jobs) or of
sidekiq-scheduler (below schedule), and not a template with ERB (- is standard input).
cron with a time zone after it, every, class, args and queue are carried over. Natural
language ("every day at noon") is not. The job's action puts the job into Sidekiq's
queue with the program enqueue.rb of docs/migration.md.`,
		example: "  cronce import sidekiq config/schedule.yml >jobs.yaml",
		zone:    "UTC", zoneOf: "schedules that name none: that of the application",
		head: []string{
			"Imported from a schedule of Sidekiq. Each job puts its Sidekiq job into Sidekiq's queue with",
			"enqueue.rb, which the page on migration shows: put it beside this file. As before, missed runs",
			"are not caught up. Schedules that name no time zone are in that of --tz, by default UTC: with",
			"Rails, sidekiq-cron uses Rails' time zone, and sidekiq-scheduler uses the machine's. Check the days",
			`on which clocks change with "cronce next -f": fugit, which computed the times, has its own rules.`,
		}, read: migrate.Sidekiq,
	},
	{
		name: "github", short: "Convert the schedule of a GitHub workflow to a job file",
		long: `Github reads on.schedule of a workflow of GitHub, or of another service that uses the same
format (- is standard input). Its times are UTC. The steps of the workflow are not carried
over: the action of each job is a placeholder that fails until you write into it what the
workflow did.`,
		example: "  cronce import github .github/workflows/nightly.yml >jobs.yaml",
		head: []string{
			"Imported from the schedule of a workflow. Its steps are not carried over: each action is a",
			"placeholder that fails (with exit status 65, which is not retried) until you replace it with what",
			"the workflow did. The times are UTC, as on GitHub. When GitHub is busy, it starts a run late or",
			"not at all; here a run starts when it is due.",
		},
		readFile: func(text []byte, path string) (migrate.Result, error) {
			return migrate.GitHub(text, filepath.ToSlash(path))
		},
	},
}

func (f importFormat) command(a *base.App) *cobra.Command {
	var zone string
	var shadow bool
	cmd := &cobra.Command{
		Use:     f.name + " FILE",
		Short:   f.short,
		Long:    f.long + "\n\n" + importStatus,
		Example: f.example,
		Args:    base.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.readFile == nil {
				if err := checkZone(cmd, zone); err != nil {
					return err
				}
			}
			text, err := readText(cmd.Context(), a, args[0])
			if err != nil {
				return err
			}
			read, with := f.read, zone
			if f.readFile != nil {
				read, with = f.readFile, args[0]
			}
			result, err := read(text, with)
			if err != nil {
				return base.Usage(fmt.Errorf("%s: %w", args[0], err))
			}
			return printImported(a, args[0], f.head, result, shadow)
		},
	}
	if f.readFile == nil {
		cmd.Flags().StringVar(&zone, "tz", f.zone, "time zone of "+f.zoneOf)
	}
	addShadow(cmd, &shadow)
	return cmd
}
