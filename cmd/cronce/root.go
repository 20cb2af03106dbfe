package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/cmd/cronce/files"
	"github.com/cronce-io/cronce/cmd/cronce/fleet"
	"github.com/cronce-io/cronce/cmd/cronce/jobs"
	"github.com/cronce-io/cronce/cmd/cronce/lab"
	"github.com/cronce-io/cronce/cmd/cronce/serve"
	"github.com/cronce-io/cronce/cmd/cronce/slots"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/schedule/tzdata"
	"github.com/cronce-io/cronce/internal/text/printable"
)

// execute runs one command line and returns its exit status.
func execute(ctx context.Context, a *base.App, args []string) int {
	root := newRootCommand(a)
	root.SetArgs(append([]string{}, args...)) // cobra reads os.Args if args is nil
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	err := root.ExecuteContext(ctx)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	if err != nil && !base.BrokenPipe(err) {
		fmt.Fprintln(a.Stderr, "cronce:", shownError(err))
	}
	return base.ExitCode(err)
}

// wanted says what the flag takes, in place of pflag's error, which is one of package strconv or time.
func wanted(invalid *pflag.InvalidValueError) error {
	cause := invalid.Unwrap()
	switch kind := invalid.GetFlag().Value.Type(); {
	case strings.HasPrefix(cause.Error(), "want "): // the flag's own error
		return cause
	case errors.Is(cause, strconv.ErrRange):
		return errors.New("want a number nearer to 0")
	case kind == "int":
		return errors.New("want a whole number, such as 10")
	case kind == "uint64":
		return errors.New("want a whole number of at least 0, such as 10")
	case kind == "bool":
		return errors.New("want true or false")
	case kind == "duration":
		return errors.New("want a duration like 90s or 36h")
	}
	return cause
}

// shownError returns the text of an error with control characters escaped and long lines cut. An
// error in a job file has several lines.
func shownError(err error) string {
	const longestLine = 2000
	lines := strings.Split(strings.TrimRight(err.Error(), "\n"), "\n")
	for i, line := range lines {
		lines[i] = printable.Text(codec.ClipTo(line, longestLine))
	}
	return strings.Join(lines, "\n")
}

const rootLong = `Cronce runs scheduled jobs on any number of machines, without a leader. Every process
computes every slot (a job and its planned instant), and NATS JetStream folds the
copies, so each slot runs once and has one recorded outcome.

Start the same command in three terminals to get a fleet of three:

  cronce run -f jobs.yaml

With no --server, no NATS_URL and no selected NATS context it joins the server on
127.0.0.1:4222, or embeds one there.

Exit status: 0 done, 1 failed (the server or the environment), 2 wrong usage or
configuration, 3 a check found something, 130 after a second TERM or
Ctrl-C, or after the first if the command waited for an outcome.`

func newRootCommand(a *base.App) *cobra.Command {
	root := &cobra.Command{
		Use:           "cronce",
		Short:         "Run every slot of every job once, without a leader",
		Long:          rootLong,
		Version:       base.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		// Without Args and RunE cobra reports an unknown command itself, on four lines.
		Args: base.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := base.RefuseEmpty(cmd.Flags()); err != nil {
				return err
			}
			return a.SetUp()
		},
	}
	root.SetVersionTemplate(fmt.Sprintf("cronce {{.Version}} (%s, %s/%s)\n", runtime.Version(), runtime.GOOS, runtime.GOARCH))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// The flags of a command that does not exist are unknown too. pflag keeps the arguments before them.
		if cmd.HasSubCommands() {
			if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
				return err
			}
		}
		if invalid := (*pflag.InvalidValueError)(nil); errors.As(err, &invalid) {
			err = fmt.Errorf("invalid --%s %q: %w", invalid.GetFlag().Name, invalid.GetValue(), wanted(invalid))
		}
		return base.Try(base.Usage(err), cmd.CommandPath()+" --help")
	})
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages |", ".FlagUsagesWrapped 100 |"))
	a.AddGlobalFlags(root)
	root.AddCommand(
		fleet.NewAuthCommand(a),
		lab.NewBenchCommand(a),
		files.NewCheckCommand(a),
		lab.NewConformanceCommand(a),
		fleet.NewDoctorCommand(a),
		files.NewImportCommand(a),
		jobs.NewCommand(a),
		jobs.NewNextCommand(a),
		fleet.NewNodeCommand(a),
		serve.NewRunCommand(a),
		serve.NewServerCommand(a),
		fleet.NewSetupCommand(a),
		slots.NewCommand(a),
		lab.NewTortureCommand(a),
		serve.NewUICommand(a),
		fleet.NewVerifyCommand(a),
		newVersionCommand(a),
		slots.NewWatchCommand(a),
		base.NewPlural("jobs", jobs.NewCommand, a),
		base.NewPlural("list", jobs.NewCommand, a),
		base.NewPlural("slots", slots.NewCommand, a),
		base.NewPlural("nodes", fleet.NewNodeCommand, a),
	)
	base.GuardLists(root)
	return root
}

// versions is what a bug report should contain.
type versions struct {
	Cronce   string `json:"cronce"`
	Protocol int    `json:"protocol"`
	Go       string `json:"go"`
	Server   string `json:"nats_server"`
	Client   string `json:"nats_client"`
	Tzdata   string `json:"tzdata"`
	Platform string `json:"platform"`
}

func newVersionCommand(a *base.App) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program and of its parts",
		Long: `Version prints the versions of cronce, of the protocol that it speaks on the broker
(docs/protocol.md), of Go, of the embedded nats-server, of the NATS client library and
of the time zone data. It needs no server. "cronce node ls" shows the versions of a
running fleet.

With -o json, one line:

  {"cronce":"v1.0.0","protocol":1,"go":"go1.26.8","nats_server":"2.15.2","nats_client":"1.55.0","tzdata":"2025c",
   "platform":"linux/amd64"}`,
		Example: "  cronce version\n  cronce version -o json | jq .protocol",
		Args:    base.Arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			v := versions{
				base.Version(), codec.Version, runtime.Version(), server.VERSION, nats.Version, tzdata.Version,
				runtime.GOOS + "/" + runtime.GOARCH,
			}
			if a.Output == base.OutputJSON {
				return a.PrintJSON(v)
			}
			w := base.NewTable(a.Stdout)
			fmt.Fprintf(w, "cronce\t%s\nprotocol\t%d\ngo\t%s\nnats-server\t%s\nnats.go\t%s\ntzdata\t%s\nplatform\t%s\n",
				v.Cronce, v.Protocol, v.Go, v.Server, v.Client, v.Tzdata, v.Platform)
			return w.Flush()
		},
	}
}
