package base

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/text/printable"
)

// NewRoot returns the command of a whole program, with the global flags and without commands.
func NewRoot(a *App, name, short, long string) *cobra.Command {
	root := &cobra.Command{
		Use:           name,
		Short:         short,
		Long:          long,
		Version:       Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		// Without Args and RunE cobra reports an unknown command itself, on four lines.
		Args: NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := RefuseEmpty(cmd.Flags()); err != nil {
				return err
			}
			return a.SetUp()
		},
	}
	root.SetVersionTemplate(fmt.Sprintf("%s {{.Version}} (%s, %s/%s)\n", name, runtime.Version(), runtime.GOOS, runtime.GOARCH))
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
		return Try(Usage(err), cmd.CommandPath()+" --help")
	})
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages |", ".FlagUsagesWrapped 100 |"))
	a.AddGlobalFlags(root)
	return root
}

// Execute runs one command line of the program root and returns its exit status.
func Execute(ctx context.Context, a *App, root *cobra.Command, args []string) int {
	root.SetArgs(append([]string{}, args...)) // cobra reads os.Args if args is nil
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	err := root.ExecuteContext(ctx)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	if err != nil && !BrokenPipe(err) {
		fmt.Fprintln(a.Stderr, root.Name()+":", shownError(err))
	}
	return ExitCode(err)
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

// sameSignal is how soon after the first signal another one is ignored.
const sameSignal = 100 * time.Millisecond

// UntilSignal returns a context that ends with the first TERM or Ctrl-C: the command then
// shuts down gracefully. A second signal exits at once. A signal within sameSignal of the
// first is ignored, because timeout(1) and some supervisors signal the process and then its
// group.
//
// SIGPIPE is caught, so that a write to a closed pipe fails with EPIPE and the command ends
// cleanly. It is not ignored, because programs that exec actions start would inherit that; a
// caught signal is reset to the default.
func UntilSignal(parent context.Context, exit func(code int)) context.Context {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		for first := time.Now(); ; {
			<-signals
			if time.Since(first) > sameSignal {
				exit(ExitInterrupted)
			}
		}
	}()
	return ctx
}
