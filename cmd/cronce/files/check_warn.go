package files

import (
	"fmt"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/action/execaction"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
)

// checkWarnings lists, for each job in the file's order, problems that do not make the
// file invalid: a job in "after" is not in the file, or a program, a user or a folder is not on
// this machine.
func checkWarnings(file *spec.File) [][]string {
	names := make(map[string]bool, len(file.Jobs))
	for _, e := range file.Jobs {
		names[e.Job.Name] = true
	}
	missing := map[string]error{}
	find := func(e spec.Exec) error {
		key := fmt.Sprintf("%q", []string{e.Args[0], e.Dir, e.User, e.Group, e.Path()})
		err, known := missing[key]
		if !known {
			err = execaction.Missing(e)
			missing[key] = err
		}
		return err
	}
	warnings := make([][]string, len(file.Jobs))
	for i, e := range file.Jobs {
		for _, name := range e.Job.After {
			if !names[name] {
				warnings[i] = append(warnings[i], fmt.Sprintf("after: no job %q is in this file; if it is not in the registry either, this job never starts", name))
			}
		}
		if e.Action.Exec != nil {
			if err := find(*e.Action.Exec); err != nil {
				warnings[i] = append(warnings[i], fmt.Sprintf("exec: %v: on a machine without it every attempt fails", err))
			}
		}
	}
	return warnings
}

// warnOfChecked logs the first ten warnings and counts the others.
func warnOfChecked(a *base.App, checks []checkedJob) {
	logged, more := 0, 0
	for _, c := range checks {
		for _, w := range c.Warnings {
			if logged == base.MostNamed {
				more++
				continue
			}
			logged++
			a.Log.Warn("this job may fail although the file is valid", "job", c.Job, "line", c.line, "warning", w)
		}
	}
	if more > 0 {
		a.Log.Warn("more warnings; to see all: cronce check FILE -o json", "count", more)
	}
}
