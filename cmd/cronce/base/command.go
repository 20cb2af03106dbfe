package base

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// NewGroup returns a command that only holds other commands, like "job" and "slot".
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

// NewPlural returns a hidden command that lists, and that has the other commands of its group:
// "cronce jobs" is "cronce job ls", and "cronce jobs show" is "cronce job show". newGroup
// returns a new group at each call.
func NewPlural(name string, newGroup func(*App) *cobra.Command, a *App) *cobra.Command {
	from, rest := newGroup(a), newGroup(a)
	list, _, err := from.Find([]string{"ls"})
	if err != nil {
		panic(err) // the group has no list
	}
	commands := rest.Commands()
	rest.RemoveCommand(commands...)
	from.RemoveCommand(list)
	list.Use, list.Aliases, list.Hidden = name, nil, true
	list.AddCommand(commands...)
	return list
}

// NoSuchCommand rejects an argument where the name of a command is expected, and suggests
// the commands of this name one level below, or similar ones.
func NoSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := cmd.CommandPath() + " --help"
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	if below := commandsBelow(cmd, args[0]); len(below) > 0 {
		hint = strings.Join(below, " or ")
	} else if close := cmd.SuggestionsFor(args[0]); len(close) > 0 {
		hint = cmd.CommandPath() + " " + strings.Join(close, " or ")
	}
	return Try(Usage(fmt.Errorf("unknown command %q", cmd.CommandPath()+" "+args[0])), hint)
}

func commandsBelow(cmd *cobra.Command, name string) (paths []string) {
	for _, group := range cmd.Commands() {
		for _, c := range group.Commands() {
			if c.Name() == name && group.IsAvailableCommand() {
				paths = append(paths, c.CommandPath())
			}
		}
	}
	return paths
}

// RefuseEmpty returns a usage error if a flag is given with an empty value. That is usually an unset
// variable of a script, and must not select the default, which may be all jobs or another server.
func RefuseEmpty(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		value := f.Value.String()
		if err == nil && (value == "" || value == "[]" && f.Value.Type() == "stringSlice") {
			err = Usage(fmt.Errorf("invalid --%s: must not be empty; leave it out for the default", f.Name))
		}
	})
	return err
}

// Arguments marks the errors of a cobra argument check as wrong usage. Cobra calls an argument of a
// command that takes none an unknown command.
func Arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err, hint := check(cmd, args), cmd.CommandPath()+" --help"
		if err != nil && !cmd.HasSubCommands() && strings.HasPrefix(err.Error(), "unknown command") {
			err = fmt.Errorf("unexpected argument %q", args[0])
			if f := cmd.Flags().ShorthandLookup("f"); f != nil && !f.Changed {
				hint = cmd.CommandPath() + " -f FILE"
			}
		}
		return Try(Usage(err), hint)
	}
}

// Endless wraps a command that runs until it is stopped. If ctx ends, the command has
// succeeded, even if it was still starting.
func Endless(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if cmd.Context().Err() != nil {
			return nil
		}
		return err
	}
}

// Version is the module's version that the Go command stamped into the binary.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
