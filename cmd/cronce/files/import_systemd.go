package files

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/jobfile/migrate"
	"github.com/cronce-io/cronce/internal/jobfile/migrate/unitfile"
)

func newImportSystemdCommand(a *base.App) *cobra.Command {
	var zone string
	var shadow bool
	cmd := &cobra.Command{
		Use:   "systemd FILE...",
		Short: "Convert timers of systemd to a job file",
		Long: `Systemd reads timers and the services that they start: the output of "systemctl cat"
(- is standard input), which has the drop-ins too, or unit files. The service beside a
timer's file is read with it. Each OnCalendar becomes a job with the same slots, clock
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
			return printImported(a, args[0], migrate.SystemdHead, migrate.Systemd(units, zone), shadow)
		},
	}
	cmd.Flags().StringVar(&zone, "tz", "", "time zone of expressions that name none (default: this machine's if known, else UTC)")
	addShadow(cmd, &shadow)
	return cmd
}

// readUnits reads the files, and the service beside each timer.
func readUnits(ctx context.Context, a *base.App, paths []string) (units []unitfile.File, err error) {
	for _, path := range paths {
		stem, isTimer := strings.CutSuffix(path, ".timer")
		if !isTimer {
			continue
		}
		for _, service := range []string{stem + ".service", migrate.Template(stem + ".service")} {
			if service == "" || slices.Contains(paths, service) {
				continue
			}
			if _, err := os.Stat(service); err == nil {
				paths = append(slices.Clip(paths), service)
			} else if !errors.Is(err, fs.ErrNotExist) {
				return nil, base.Usage(err)
			}
		}
	}
	for _, path := range paths {
		text, err := readText(ctx, a, path)
		if err != nil {
			return nil, err
		}
		unit := unitfile.File{Path: filepath.ToSlash(path), Text: string(text)}
		if len(paths) > 1 {
			unit.File = path
		}
		units = append(units, unit)
	}
	return units, nil
}
