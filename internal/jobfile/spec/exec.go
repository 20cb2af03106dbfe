package spec

import (
	"path/filepath"
	"slices"
	"strings"
)

// Exec is a program that is started without a shell.
type Exec struct {
	// Args are the program and its arguments. The first element is not empty.
	Args []string

	// Env are variables that the program gets, in the order of the file. No two have the
	// same name.
	Env []Variable

	// CleanEnv is true if the program gets only PATH and the variables of PassEnv from the
	// worker's environment.
	CleanEnv bool

	// PassEnv names variables of the worker's environment that the program gets although
	// they may hold a login.
	PassEnv []string

	// Dir is the working directory; empty: the worker's. A relative one is below the
	// worker's. "~" is the home directory of User, or of the worker's user.
	Dir string

	// User and Group are names or numbers of the system's users and groups; empty: those of
	// the worker, or the groups of User.
	User, Group string
}

// Path returns the PATH that Env sets, or "".
func (e Exec) Path() string {
	for _, v := range e.Env {
		if v.Name == "PATH" {
			return v.Value
		}
	}
	return ""
}

// Variable is an environment variable. At most one of Value, Env and File is set.
type Variable struct {
	Name string

	// Value is the value in the job file. Secrets belong elsewhere, but in case it is one, it is never shown.
	Value string

	// Env names a variable of the worker's environment, File a file with the value.
	Env, File string
}

const (
	// MaxVariable is the longest value of a variable, in bytes. Linux passes on less than
	// 128 KiB.
	MaxVariable = 64 << 10

	execExample     = `a list of a program and its arguments, like ["/bin/sh", "-c", "make report"]`
	variableExample = `text, {env: NAME} or {file: PATH}, like {file: /run/secrets/token}`
)

// SlotVariables are the variables that Cronce sets for each run.
var SlotVariables = []string{
	"CRONCE_JOB", "CRONCE_SLOT", "CRONCE_SLOT_ID", "CRONCE_SHARD", "CRONCE_SHARDS", "CRONCE_ATTEMPT", "CRONCE_FENCE",
	"CRONCE_NODE", "CRONCE_QUEUE", "CRONCE_NAMESPACE", "TRACEPARENT", "TRACESTATE",
}

// execFields returns the fields of an action that belong to exec.
func (j *jobDecoder) execFields(e *Exec) []field {
	return []field{
		{"exec", func(v value) { e.Args = j.args(v) }},
		{"env", func(v value) { e.Env = j.variables(v) }},
		{"clean_env", func(v value) { e.CleanEnv = j.flag(v) }},
		{"pass_env", func(v value) { e.PassEnv = j.passEnv(v) }},
		{"dir", func(v value) { e.Dir = j.dir(v) }},
		{"user", func(v value) { e.User = j.account(v, "www-data") }},
		{"group", func(v value) { e.Group = j.account(v, "www-data") }},
	}
}

// args reads exec. It returns nil if an error was reported.
func (j *jobDecoder) args(v value) []string {
	var argv []string
	right := true
	j.list(v, execExample, func(item value) {
		if item.Kind == Text && item.Scalar == "" && len(argv) > 0 {
			argv = append(argv, "") // only the program must not be empty
			return
		}
		arg, ok := j.text(item, "/bin/sh")
		if ok && strings.ContainsRune(arg, 0) {
			j.fail(item.At, "%s: it has a zero byte, which an argument of a program cannot have", item.label)
			ok = false
		}
		right = right && ok
		argv = append(argv, arg)
	})
	if v.Kind == List && len(v.Items) == 0 {
		j.fail(v.At, "%s: it is empty: want %s", v.label, execExample)
	}
	if !right {
		return nil
	}
	return argv
}

// variables reads env. Its errors do not show values, which may be secrets.
func (j *jobDecoder) variables(v value) []Variable {
	if v.Kind != Mapping && v.Kind != Broken {
		j.hide(v.At)
		j.fail(v.At, "%s: want a mapping of names to values, like {API_TOKEN: {file: /run/secrets/token}}, got %s", v.label, v.Kind)
	}
	var all []Variable
	for _, m := range v.Members {
		if m.Value.Kind != Mapping {
			j.hide(m.Value.At)
		}
		if !IsVariableName(m.Name) {
			j.fail(m.At, "%s: %q: want the name of a variable, without spaces and =, like API_TOKEN", v.label, Clip(m.Name))
			continue
		}
		if slices.Contains(SlotVariables, m.Name) {
			j.fail(m.At, "%s: %s is set by Cronce for each run: want another name", v.label, m.Name)
			continue
		}
		if one, ok := j.variable(value{m.Value, v.label + "." + m.Name}); ok {
			one.Name = m.Name
			all = append(all, one)
		}
	}
	return all
}

// IsVariableName reports whether a variable of env can have the name.
func IsVariableName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == '=' || r == 0x7f })
}

func (j *jobDecoder) variable(v value) (one Variable, ok bool) {
	switch v.Kind {
	case Broken:
		return one, false
	case Mapping:
		one.Env, one.File, ok = j.secret(v, variableExample)
		return one, ok
	case Number, Boolean:
		j.fail(v.At, "%s: want text, got %s; if that is meant, quote it", v.label, v.Kind)
	case List, Null:
		j.fail(v.At, "%s: want %s, got %s", v.label, variableExample, v.Kind)
	case Text:
		switch {
		case len(v.Scalar) > MaxVariable:
			j.fail(v.At, "%s: %d bytes, at most %d KiB: store it in a file", v.label, len(v.Scalar), MaxVariable>>10)
		case strings.ContainsRune(v.Scalar, 0):
			j.fail(v.At, "%s: it has a zero byte, which an environment variable cannot have", v.label)
		default:
			return Variable{Value: v.Scalar}, true
		}
	}
	return one, false
}

// secret reads a value that comes from the worker's environment or a file. more are other members
// that it may have.
func (d *decoder) secret(v value, example string, more ...field) (env, file string, ok bool) {
	ok = d.sound(func() {
		known := d.object(v, append(more,
			field{"env", func(v value) { env = d.nameOfVariable(v) }},
			field{"file", func(v value) { file = d.path(v, "/run/secrets/token") }}))
		if known && (v.member("env") == nil) == (v.member("file") == nil) {
			d.fail(v.At, "%s: want %s", v.label, example)
		}
	})
	return env, file, ok
}

func (d *decoder) nameOfVariable(v value) string {
	const example = "API_TOKEN"
	s, ok := d.text(v, example)
	if ok && !IsVariableName(s) {
		name, value, given := strings.Cut(s, "=")
		if given && value != "" { // it may be a secret
			d.hide(v.At)
			name += "=..."
		}
		d.fail(v.At, "%s %q: want the name of an environment variable, like %s", v.label, Clip(name), example)
		return ""
	}
	return s
}

func (j *jobDecoder) passEnv(v value) (names []string) {
	j.list(v, "a list of environment variables, like [NATS_URL, NATS_CREDS]", func(item value) {
		if name := j.nameOfVariable(item); name != "" {
			names = append(names, name)
		}
	})
	return names
}

// path reads the path of a file or folder of the worker's machine.
func (d *decoder) path(v value, example string) string {
	const most = 4096 // the limit of Linux
	s, ok := d.text(v, example)
	switch {
	case !ok:
	case strings.ContainsRune(s, 0):
		d.fail(v.At, "%s: it has a zero byte, which a path cannot have", v.label)
	case len(s) > most:
		d.fail(v.At, "%s: %d bytes, at most %d", v.label, len(s), most)
	default:
		return s
	}
	return ""
}

func (j *jobDecoder) dir(v value) string {
	s := j.path(v, "/srv/report")
	if strings.HasPrefix(s, "~") && s != "~" && s[1] != '/' && s[1] != filepath.Separator {
		j.fail(v.At, "%s %q: ~ is the home directory of the action's user: want ~ or ~/reports", v.label, Clip(s))
		return ""
	}
	return s
}

// account reads the name or number of a user or group. Whether it exists depends on the machine,
// so the worker checks that.
func (j *jobDecoder) account(v value, example string) string {
	s, ok := j.text(v, example)
	if ok && !IsAccount(s) {
		j.fail(v.At, "%s %q: want a name like %s, or a number in quotes", v.label, Clip(s), example)
		return ""
	}
	return s
}

// IsAccount reports whether user and group can have the name.
func IsAccount(s string) bool {
	return s != "" && len(s) <= 256 && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == ':' || r == 0x7f })
}
