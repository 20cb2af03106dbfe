package files

import (
	"fmt"
	"os/exec"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
)

// checkWarnings lists, for each job in the file's order, problems that do not make the
// file invalid: a job in after that the file does not have, and a program that is not on
// this machine.
func checkWarnings(file *spec.File) [][]string {
	names := make(map[string]bool, len(file.Jobs))
	for _, e := range file.Jobs {
		names[e.Job.Name] = true
	}
	missing := map[string]error{}
	find := func(program string) error {
		err, known := missing[program]
		if !known {
			_, err = exec.LookPath(program)
			missing[program] = err
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
		if argv := e.Action.Exec; len(argv) > 0 {
			if err := find(argv[0]); err != nil {
				warnings[i] = append(warnings[i], fmt.Sprintf("exec: %v: on a machine without it every attempt fails", err))
			}
		}
	}
	return warnings
}

// warnOfChecked logs the first ten warnings and counts the others.
func warnOfChecked(a *base.App, checks []checkedJob) {
	said, more := 0, 0
	for _, c := range checks {
		for _, w := range c.Warnings {
			if said == base.MostNamed {
				more++
				continue
			}
			said++
			a.Log.Warn("this job may fail although the file is valid", "job", c.Job, "line", c.line, "warning", w)
		}
	}
	if more > 0 {
		a.Log.Warn("more warnings; to see all: cronce check FILE -o json", "count", more)
	}
}
