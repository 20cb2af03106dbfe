package base

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// NewGroup is a command that only holds others, like "job" and "slot".
func NewGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Try(Usage(fmt.Errorf("%q needs a command", cmd.CommandPath())), cmd.CommandPath()+" --help")
		},
	}
	group.AddCommand(commands...)
	return group
}

// NoSuchCommand refuses arguments where a command's name is expected, and guesses
// which was meant.
func NoSuchCommand(cmd *cobra.Command, args []string) error {
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
	return Try(Usage(fmt.Errorf("unknown command %q", cmd.CommandPath()+" "+args[0])), hint)
}

// Arguments makes the errors of a cobra argument check wrong usage.
func Arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return Try(Usage(check(cmd, args)), cmd.CommandPath()+" --help")
	}
}

// Endless is for a command that runs until it is told to end: to be told so while
// it still starts is no failure, whatever it was waiting for.
func Endless(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if cmd.Context().Err() != nil {
			return nil
		}
		return err
	}
}

// Version is the module's version as the Go command stamped it.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
