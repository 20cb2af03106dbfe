package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/internal/natsconn/embed"
	"github.com/cronce-io/cronce/internal/printable"
)

// execute runs one command line and returns its exit status.
func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, getenv: os.Getenv, now: time.Now, local: embed.DefaultListen}
	return a.execute(ctx, args)
}

func (a *app) execute(ctx context.Context, args []string) int {
	root := newRootCommand(a)
	root.SetArgs(append([]string{}, args...)) // for nil cobra would take those of the process
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	err := root.ExecuteContext(ctx)
	if interrupted(ctx, err) {
		err = errors.New("interrupted")
	}
	if err != nil && !brokenPipe(err) {
		fmt.Fprintln(a.stderr, "cronce:", shownError(err))
	}
	return exitCode(err)
}

// shownError is an error as a terminal may have it. The mistakes of a file have lines of
// their own.
func shownError(err error) string {
	const longestLine = 2000
	lines := strings.Split(strings.TrimRight(err.Error(), "\n"), "\n")
	for i, line := range lines {
		if len(line) > longestLine {
			line = line[:longestLine] + "..."
		}
		lines[i] = printable.Text(line)
	}
	return strings.Join(lines, "\n")
}

const rootLong = `Cronce runs scheduled jobs on any number of machines, without a leader: every
process computes every slot (a job and its planned instant), and NATS JetStream
folds the copies, so that each slot runs once and has one recorded outcome.

Start the same command in three terminals and you have a fleet of three:

  cronce run -f jobs.yaml

With no --server, no NATS_URL and no selected NATS context it joins the server on
127.0.0.1:4222, or embeds one there.

Exit status: 0 done, 1 failed (the server or the environment), 2 wrong usage or
configuration, 3 a check found something, 130 after a second TERM or Ctrl-C.`

func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "cronce",
		Short:         "Run every slot of every job once, without a leader",
		Long:          rootLong,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		// Without Args and RunE cobra would answer a wrong command itself, on
		// four lines.
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return a.setUp()
		},
	}
	root.SetVersionTemplate(fmt.Sprintf("cronce {{.Version}} (%s, %s/%s)\n", runtime.Version(), runtime.GOOS, runtime.GOARCH))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return try(usage(err), cmd.CommandPath()+" --help")
	})
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages |", ".FlagUsagesWrapped 100 |"))
	a.addGlobalFlags(root)
	root.AddCommand(
		newAuthCommand(a),
		newBenchCommand(a),
		newCheckCommand(a),
		newDoctorCommand(a),
		newImportCommand(a),
		newJobCommand(a),
		newNextCommand(a),
		newNodeCommand(a),
		newRunCommand(a),
		newServerCommand(a),
		newSetupCommand(a),
		newSlotCommand(a),
		newTortureCommand(a),
		newVerifyCommand(a),
		newWatchCommand(a),
	)
	guardLists(root)
	return root
}

// newGroup is a command that only holds others, like "job" and "slot".
func newGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return try(usage(fmt.Errorf("%q needs a command", cmd.CommandPath())), cmd.CommandPath()+" --help")
		},
	}
	group.AddCommand(commands...)
	return group
}

// noSuchCommand refuses arguments where a command's name is expected, and guesses
// which was meant.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := cmd.CommandPath() + " --help"
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	if close := cmd.SuggestionsFor(args[0]); len(close) > 0 {
		hint = cmd.CommandPath() + " " + strings.Join(close, " or ")
	}
	return try(usage(fmt.Errorf("unknown command %q", cmd.CommandPath()+" "+args[0])), hint)
}

// arguments makes the errors of a cobra argument check wrong usage.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return try(usage(check(cmd, args)), cmd.CommandPath()+" --help")
	}
}

// endless is for a command that runs until it is told to end: to be told so while
// it still starts is no failure, whatever it was waiting for.
func endless(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if cmd.Context().Err() != nil {
			return nil
		}
		return err
	}
}

// interrupted reports whether err only says that the context has ended.
func interrupted(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}

// version is the module's version as the Go command stamped it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
