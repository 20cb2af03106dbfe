package migrate

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/jobfile/migrate/unitfile"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
)

// serviceCommand is what a service starts.
type serviceCommand struct {
	unit    *unitfile.Unit
	exec    spec.Exec
	timeout time.Duration
	dropped []droppedSetting

	// why is why the service cannot be carried over, and at the setting that is the reason.
	why string
	at  unitfile.Setting
}

func (c *serviceCommand) drop(u unitfile.Setting, format string, args ...any) {
	c.dropped = append(c.dropped, droppedSetting{u, fmt.Sprintf(format, args...)})
}

// read reads the service. It reports the settings of its sandbox, its resources and other units
// together, in one note.
func (c *serviceCommand) read() {
	starts := c.unit.All("Service", "ExecStart")
	if len(starts) == 0 {
		c.why, c.at = c.unit.Name+" has no ExecStart", place(c.unit)
		return
	}
	c.environment()
	c.settings()
	var scripts []string
	for i, u := range starts {
		args, ignoreFailure := c.program(u)
		if c.why != "" {
			return
		}
		if len(starts) == 1 && !ignoreFailure {
			c.exec.Args = args
			return
		}
		if i == 0 {
			scripts = append(scripts, "set -e")
		}
		line := strings.Join(codec.Map(args, shellWord), " ")
		if ignoreFailure {
			line += " || :"
		}
		scripts = append(scripts, line)
	}
	c.exec.Args = []string{"/bin/sh", "-c", strings.Join(scripts, "\n")}
}

// shellWord quotes a word for a shell, if it must be.
func shellWord(word string) string {
	if word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,@+%") == "" {
		return word
	}
	return shellQuoted(word)
}

func shellQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func (c *serviceCommand) program(u unitfile.Setting) (args []string, ignoreFailure bool) {
	text, argv0, literal := u.Value, false, false
	for text != "" && strings.ContainsRune("@-:+!", rune(text[0])) {
		switch text[0] {
		case '-':
			ignoreFailure = true
		case '@':
			argv0 = true
		case ':':
			literal = true
		default:
			c.drop(u, "not carried over: the %c before its command, which starts it with more rights", text[0])
		}
		text = text[1:]
	}
	args, ok := unitfile.Words(text)
	if !ok || len(args) == 0 {
		c.why, c.at = fmt.Sprintf("its command %s is not understood", clip(u.Value)), u
		return nil, false
	}
	if argv0 && len(args) > 1 {
		c.drop(u, "not carried over: the name %s of its program (argv[0])", clip(args[1]))
		args = slices.Delete(args, 1, 2)
	}
	if slices.Contains(args, ";") {
		c.why, c.at = "a command line with a ; between commands is not understood; write a line for each", u
		return nil, false
	}
	var all []string
	for i, a := range args {
		a = c.specifiers(u, a)
		if i == 0 || literal {
			all = append(all, a)
			continue
		}
		all = append(all, c.variables(u, a)...)
	}
	return all, ignoreFailure
}

// specifiers replaces the specifiers that depend only on the unit's name.
func (c *serviceCommand) specifiers(u unitfile.Setting, text string) string {
	return c.unit.Expand(text, func(unknown string) {
		c.drop(u, "not carried over: the value of %s in %s=", unknown, u.Key)
	})
}

var variable = regexp.MustCompile(`\$(\$|\{[A-Za-z_][A-Za-z0-9_]*\}|[A-Za-z_][A-Za-z0-9_]*)`)

// variables replaces the variables that the unit sets. If the whole word is a variable like $NAME,
// its value is split at white space.
func (c *serviceCommand) variables(u unitfile.Setting, word string) []string {
	value := func(name string) (string, bool) {
		for _, v := range slices.Backward(c.exec.Env) {
			if v.Name == name {
				return v.Value, true
			}
		}
		return "", false
	}
	if m := variable.FindString(word); m == word && m != "" && m != "$$" && m[1] != '{' {
		if text, ok := value(m[1:]); ok {
			return strings.Fields(text)
		}
	}
	unknown := ""
	replaced := variable.ReplaceAllStringFunc(word, func(m string) string {
		if m == "$$" {
			return "$"
		}
		if text, ok := value(strings.Trim(m, "${}")); ok && m[1] == '{' {
			return text
		}
		unknown = m
		return m
	})
	if unknown != "" {
		c.drop(u, "not carried over: the value of %s in its command: there is no shell", clip(unknown))
	}
	return []string{replaced}
}

// environment reads the variables, the user, the group and the working directory.
func (c *serviceCommand) environment() {
	for _, u := range c.unit.All("Service", "Environment") {
		all, ok := unitfile.Words(u.Value)
		if !ok {
			c.drop(u, "not carried over: Environment=%s", clip(u.Value))
		}
		for _, assigned := range all {
			name, value, isSet := strings.Cut(c.specifiers(u, assigned), "=")
			if !isSet || !settable(name, value) {
				c.drop(u, "not carried over: the variable %s", clip(assigned))
				continue
			}
			c.exec.Env = slices.DeleteFunc(c.exec.Env, func(v spec.Variable) bool { return v.Name == name })
			c.exec.Env = append(c.exec.Env, spec.Variable{Name: name, Value: value})
		}
	}
	for key, to := range map[string]*string{"User": &c.exec.User, "Group": &c.exec.Group} {
		if u, ok := c.unit.Last("Service", key); ok {
			if value := c.specifiers(u, u.Value); spec.IsAccount(value) {
				*to = value
			} else {
				c.drop(u, "not carried over: %s=%s", key, clip(u.Value))
			}
		}
	}
	if u, ok := c.unit.Last("Service", "WorkingDirectory"); ok {
		dir := strings.TrimPrefix(c.specifiers(u, u.Value), "-")
		switch {
		case dir == "~" || path.IsAbs(dir):
			c.exec.Dir = dir
		default:
			c.drop(u, "not carried over: WorkingDirectory=%s", clip(u.Value))
		}
		if strings.HasPrefix(u.Value, "-") {
			c.drop(u, "the - of WorkingDirectory=%s: a folder that does not exist is an error here", clip(u.Value))
		}
	}
}

func (c *serviceCommand) settings() {
	var others []string
	var first unitfile.Setting
	for _, u := range c.unit.Settings {
		switch key := u.Section + "." + u.Key; {
		case isIgnored(u):
		case slices.Contains([]string{"ExecStart", "Environment", "User", "Group", "WorkingDirectory"}, u.Key) && u.Section == "Service":
		case key == "Service.Type" && slices.Contains([]string{"oneshot", "simple", "exec"}, u.Value):
		case key == "Service.TimeoutStartSec" || key == "Service.TimeoutSec" || key == "Service.RuntimeMaxSec":
			c.bound(u)
		case key == "Service.Restart" && u.Value == "no":
		case key == "Service.Restart":
			c.drop(u, "Restart=%s: retry: {attempts: N} retries a failed run", clip(u.Value))
		case strings.HasPrefix(key, "Service.Exec"):
			c.drop(u, "not carried over: %s=%s", u.Key, clip(u.Value))
		case key == "Service.EnvironmentFile":
			c.drop(u, "not carried over: EnvironmentFile=%s: name its variables in env, each from a file or the worker's environment", clip(u.Value))
		case key == "Service.Type":
			c.drop(u, "Type=%s: here a run ends when its command does", clip(u.Value))
		default:
			if len(others) == 0 {
				first = u
			}
			if name := u.Key; !slices.Contains(others, name) {
				others = append(others, name)
			}
		}
	}
	if len(others) > 0 {
		c.drop(first, "not carried over: %s", strings.Join(others, ", "))
	}
}

// bound reads how long a run may take. TimeoutStartSec bounds a run of the type oneshot only, and
// RuntimeMaxSec only one of another type.
func (c *serviceCommand) bound(u unitfile.Setting) {
	kind, _ := c.unit.Last("Service", "Type")
	d, ok := timeSpan(u.Value)
	switch {
	case u.Value == "infinity" || ok && d == 0:
	case !ok:
		c.drop(u, "not carried over: %s=%s", u.Key, clip(u.Value))
	case (u.Key == "RuntimeMaxSec") == (kind.Value == "oneshot"):
	case c.timeout == 0 || d < c.timeout:
		c.timeout = d
	}
}
