package base

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// listInLine is the value of a list flag. It rejects more than one line, because pflag
// would take the first line and ignore the others.
type listInLine struct{ pflag.Value }

func (l listInLine) Set(text string) error {
	if strings.ContainsAny(text, "\r\n") {
		return errors.New("more than one line: want names separated by commas, or the flag once for each")
	}
	return l.Value.Set(text)
}

// GuardLists rejects lists of more than one line in all flags of the command and its
// subcommands.
func GuardLists(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() == "stringSlice" {
			f.Value = listInLine{f.Value}
			if f.DefValue == "[]" {
				f.DefValue = "" // help then omits it
			}
		}
	})
	for _, sub := range cmd.Commands() {
		GuardLists(sub)
	}
}
