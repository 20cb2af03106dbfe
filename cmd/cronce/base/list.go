package base

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// listInLine is the value of a flag that takes a list. Of more than one line, pflag takes
// the first and says nothing of the others.
type listInLine struct{ pflag.Value }

func (l listInLine) Set(text string) error {
	if strings.ContainsAny(text, "\r\n") {
		return errors.New("it has more than one line: want names with commas between them, or the flag once for each")
	}
	return l.Value.Set(text)
}

// GuardLists refuses lists of more than one line in all flags of the command and those
// under it.
func GuardLists(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() == "stringSlice" {
			f.Value = listInLine{f.Value}
			if f.DefValue == "[]" {
				f.DefValue = "" // which help then leaves out
			}
		}
	})
	for _, sub := range cmd.Commands() {
		GuardLists(sub)
	}
}
