package execaction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cronce-io/cronce/internal/action"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/internal/tracing"
	"github.com/cronce-io/cronce/job"
)

// variable is an environment variable.
type variable struct{ name, value string }

// configured is a variable of the action. secret is the value of its environment variable.
type configured struct {
	spec.Variable
	secret string
}

// newVariables reads the variables that come from the worker's environment, once, so that a
// missing one is known at the start.
func newVariables(all []spec.Variable, getenv func(string) string) ([]configured, error) {
	variables := make([]configured, len(all))
	for i, v := range all {
		variables[i] = configured{Variable: v}
		if v.Env == "" {
			continue
		}
		if variables[i].secret = getenv(v.Env); variables[i].secret == "" {
			return nil, fmt.Errorf("env.%s: environment variable %s is not set, or empty", v.Name, v.Env)
		}
	}
	return variables, nil
}

// read returns the variable with its current value. Its errors do not show the value.
func (c configured) read() (variable, error) {
	switch {
	case c.Env != "":
		return variable{c.Name, c.secret}, nil
	case c.File == "":
		return variable{c.Name, c.Value}, nil
	}
	text, err := action.ReadFile(c.File, spec.MaxVariable)
	// Editors and echo add a line break at the end.
	text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
	switch {
	case err == nil && text == "":
		err = fmt.Errorf("file %s is empty", c.File)
	case strings.ContainsRune(text, 0):
		err = errors.New("file " + c.File + " has a zero byte, which an environment variable cannot have")
	}
	if err != nil {
		return variable{}, fmt.Errorf("env.%s: %w", c.Name, err)
	}
	return variable{c.Name, text}, nil
}

// logins are the variables of Cronce that hold a login or the location of one.
var logins = []string{
	"CRONCE_PASSWORD", "CRONCE_TOKEN", "CRONCE_CREDS", "CRONCE_NKEY", "CRONCE_USER", "CRONCE_TLSCERT", "CRONCE_TLSKEY",
}

// inherited returns the part of env, the environment of the worker, that a program gets. These are
// all variables except those that may hold a login (logins of Cronce, secrets of alerts, all of
// NATS, and a server URL with a password), or only PATH if clean is set. The variables named in
// pass are always included.
func inherited(env, pass []string, clean bool) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, value, _ := strings.Cut(v, "=")
		secret := slices.Contains(logins, name) || strings.HasPrefix(name, "NATS_") || strings.HasPrefix(name, "CRONCE_ALERT_") ||
			name == "CRONCE_SERVER" && strings.Contains(value, "@")
		return (secret || clean && name != "PATH") && !slices.Contains(pass, name)
	})
}

// with returns env with the variables added. They replace those of the same names.
func with(env []string, variables ...variable) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.ContainsFunc(variables, func(other variable) bool { return other.name == name })
	})
	for _, v := range variables {
		env = append(env, v.name+"="+v.value)
	}
	return env
}

// aboutSlot returns env with the variables that describe the slot. It removes inherited
// variables of that kind, because the worker may itself be the command of another slot.
func aboutSlot(ctx context.Context, env []string, run job.Run) []string {
	traced := tracing.Headers(ctx)
	about := []variable{
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
	absent := func(v string) bool {
		name, value, _ := strings.Cut(v, "=")
		return value == "" && slices.Contains(spec.SlotVariables, name)
	}
	return slices.DeleteFunc(with(env, about...), absent)
}

// number returns n as text, or "" for zero.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
