package execaction

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cronce-io/cronce/internal/action/guard"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

// exDataErr is EX_DATAERR of sysexits.h: the input is wrong and a retry does not help.
const exDataErr = 65

// New returns a handler that runs the command of e under g. A command without a slash in its
// name is looked up in PATH at every run, so a command that is installed later is found.
// getenv returns variables of the worker's environment. If a variable that e.Env names is not set,
// New returns an error.
func New(e spec.Exec, g *guard.Guard, getenv func(string) string) (job.Handler, error) {
	if len(e.Args) == 0 || e.Args[0] == "" {
		return nil, fmt.Errorf("%w command %q: it needs a program, as in [\"/bin/sh\", \"-c\", \"make report\"]", job.ErrInvalid, e.Args)
	}
	variables, err := newVariables(e.Env, getenv)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, run job.Run) error {
		c, err := command(ctx, e, variables, run)
		if err == nil {
			err = g.Run(ctx, c)
		}
		if err == nil {
			return nil
		}
		if _, notStarted := errors.AsType[*fs.PathError](err); notStarted && c.As != nil {
			err = fmt.Errorf("as %s in %s: %w", described(e), cmp.Or(c.Dir, "the worker's directory"), err)
		}
		err = fmt.Errorf("command %q: %w", e.Args[0], err)
		if exit, ok := errors.AsType[*guard.ExitError](err); ok && exit.Cause == nil && exit.Code == exDataErr {
			return job.Permanent(err)
		}
		return err
	}, nil
}

// command returns what the guard has to start for a run.
func command(ctx context.Context, e spec.Exec, variables []configured, run job.Run) (c guard.Command, err error) {
	a, err := lookUp(e)
	if err != nil {
		return c, err
	}
	dir, err := a.folder(e.Dir)
	if err != nil {
		return c, err
	}
	env := inherited(os.Environ(), e.PassEnv, e.CleanEnv)
	if e.User != "" {
		env = with(env, variable{"HOME", a.home}, variable{"USER", a.name}, variable{"LOGNAME", a.name})
	}
	if dir != "" {
		env = with(env, variable{"PWD", dir})
	}
	search := ""
	for _, v := range variables {
		one, err := v.read()
		if err != nil {
			return c, err
		}
		env = with(env, one)
		if one.name == "PATH" {
			search = one.value
		}
	}
	path, err := find(e.Args[0], dir, search)
	if err != nil {
		return c, err
	}
	return guard.Command{
		Path: path, Args: e.Args, Env: aboutSlot(ctx, env, run), Dir: dir, As: a.as,
		Input: run.Payload, Output: run.Output, Keep: run.OnLeaseLost == job.LeaseLostFinish,
		// Workers of another namespace on this machine may run a slot with the same ID and fence.
		Mark: []string{"CRONCE_SLOT_ID=" + run.Slot.ID(), "CRONCE_FENCE=" + strconv.FormatUint(run.Fence, 10), "CRONCE_NODE=" + run.Node},
	}, nil
}

// Missing returns an error if this machine does not have what the command needs: the user, the
// group, the working directory or the program.
func Missing(e spec.Exec) error {
	var a account
	var userErr, groupErr error
	if e.User != "" {
		a, _, userErr = lookUpUser(e.User, e.Group != "")
	}
	if e.Group != "" {
		_, groupErr = lookUpGroup(e.Group)
	}
	if err := errors.Join(userErr, groupErr); err != nil {
		return err
	}
	dir, err := a.folder(e.Dir)
	if err != nil {
		return err
	}
	_, err = find(e.Args[0], dir, e.Path())
	return err
}

// find returns the path of a program. A name without a slash is looked up in the folders of
// search, or in those of the worker's PATH if search is empty. A relative path is relative to dir.
func find(program, dir, search string) (string, error) {
	switch {
	case filepath.IsAbs(program):
	case strings.ContainsRune(filepath.ToSlash(program), '/'):
		if dir != "" {
			program = filepath.Join(dir, program)
		}
	case search != "":
		for _, folder := range filepath.SplitList(search) {
			if !filepath.IsAbs(folder) {
				continue // exec.LookPath skips these too
			}
			if path, err := exec.LookPath(filepath.Join(folder, program)); err == nil {
				return path, nil
			}
		}
		return "", fmt.Errorf("%w in the action's PATH", exec.ErrNotFound)
	}
	return exec.LookPath(program)
}
