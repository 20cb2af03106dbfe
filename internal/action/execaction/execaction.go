package execaction

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/cronce-io/cronce/internal/action"
	"github.com/cronce-io/cronce/internal/action/guard"
	"github.com/cronce-io/cronce/internal/tracing"
	"github.com/cronce-io/cronce/job"
)

// exDataErr is EX_DATAERR of sysexits.h: the input is wrong and a retry does not help.
const exDataErr = 65

// New returns a handler that runs argv, the command and its arguments, under g. A command
// without a slash in its name is searched in PATH at every run, so a command that is
// installed later is found. The command gets the environment of the worker without the
// variables that may hold a login, except those named in pass.
func New(argv, pass []string, g *guard.Guard) (job.Handler, error) {
	if len(argv) == 0 || argv[0] == "" {
		return nil, fmt.Errorf("%w command %q: it needs a program, as in [\"/bin/sh\", \"-c\", \"make report\"]", job.ErrInvalid, argv)
	}
	argv, pass = slices.Clone(argv), slices.Clone(pass)
	return func(ctx context.Context, run job.Run) error {
		path, err := exec.LookPath(argv[0])
		if err != nil {
			return fmt.Errorf("command %q: %w", argv[0], err)
		}
		err = g.Run(ctx, guard.Command{
			Path: path, Args: argv, Env: environ(ctx, withoutLogins(os.Environ(), pass), run),
			Input: run.Payload, Output: run.Output, Keep: run.OnLeaseLost == job.LeaseLostFinish,
			Mark: []string{"CRONCE_SLOT_ID=" + run.Slot.ID(), "CRONCE_FENCE=" + strconv.FormatUint(run.Fence, 10)},
		})
		if err == nil {
			return nil
		}
		err = fmt.Errorf("command %q: %w", argv[0], err)
		var exit *guard.ExitError
		if errors.As(err, &exit) && exit.Cause == nil && exit.Code == exDataErr {
			return job.Permanent(err)
		}
		return err
	}, nil
}

// logins are the variables of Cronce that hold a login or the location of one.
var logins = []string{
	"CRONCE_PASSWORD", "CRONCE_TOKEN", "CRONCE_CREDS", "CRONCE_NKEY", "CRONCE_USER", "CRONCE_TLSCERT", "CRONCE_TLSKEY",
}

// withoutLogins returns env without the variables that may hold a login: those of Cronce, of
// its alerts, all of NATS, and a server URL with a password. The variables named in pass
// stay.
func withoutLogins(env, pass []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, value, _ := strings.Cut(v, "=")
		secret := slices.Contains(logins, name) || strings.HasPrefix(name, "NATS_") || strings.HasPrefix(name, "CRONCE_ALERT_") ||
			name == "CRONCE_SERVER" && strings.Contains(value, "@")
		return secret && !slices.Contains(pass, name)
	})
}

// environ returns base with the variables that describe the slot. It removes inherited
// variables of that kind, because the worker may itself be the command of another slot.
func environ(ctx context.Context, base []string, run job.Run) []string {
	traced := tracing.Headers(ctx)
	about := []struct{ name, value string }{
		{"CRONCE_JOB", run.Slot.Job},
		{"CRONCE_SLOT", action.Instant(run.Slot)},
		{"CRONCE_SLOT_ID", run.Slot.ID()},
		{"CRONCE_SHARD", number(run.Shard)},
		{"CRONCE_SHARDS", number(run.Shards)},
		{"CRONCE_ATTEMPT", strconv.Itoa(run.Attempt)},
		{"CRONCE_FENCE", strconv.FormatUint(run.Fence, 10)},
		{"CRONCE_NODE", run.Node},
		{"CRONCE_QUEUE", run.Queue},
		{"CRONCE_NAMESPACE", run.Namespace},
		{"TRACEPARENT", traced["traceparent"]},
		{"TRACESTATE", traced["tracestate"]},
	}
	env := slices.DeleteFunc(slices.Clone(base), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		for _, a := range about {
			if name == a.name {
				return true
			}
		}
		return false
	})
	for _, a := range about {
		if a.value != "" {
			env = append(env, a.name+"="+a.value)
		}
	}
	return env
}

// number returns n as text, or "" for zero.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
