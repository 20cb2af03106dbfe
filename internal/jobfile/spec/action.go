package spec

import (
	"slices"
	"strings"
	"time"
)

// Action is what a worker does for a slot. One of Exec, HTTP and NATS is set, or none if
// the job has no action (see WithoutActions).
type Action struct {
	// Exec is a program and its arguments, started without a shell. The first
	// element is not empty.
	Exec []string

	// PassEnv names variables of the worker's environment that the program of Exec gets
	// although they may hold a login.
	PassEnv []string

	HTTP *HTTP
	NATS *NATS
}

// NATS is a request over the node's own connection.
type NATS struct {
	// Subject can be published to: no wildcards, no empty tokens.
	Subject string

	// Timeout bounds one request. Zero: the file says nothing.
	Timeout time.Duration
}

const (
	execExample = `a list of a program and its arguments, like ["/bin/sh", "-c", "make report"]`

	// MaxSubject is the longest subject, in bytes: far below what makes a server hang up, which is the length of
	// a whole protocol line.
	MaxSubject = 1024
)

// decodeAction reads an action, of which there must be exactly one.
func (j *jobDecoder) decodeAction(v value) {
	kinds := []field{
		{"exec", j.exec},
		{"http", func(v value) { j.action.HTTP = j.http(v) }},
		{"nats", func(v value) { j.action.NATS = j.nats(v) }},
	}
	known := j.object(v, slices.Insert(slices.Clone(kinds), 1, field{"pass_env", j.passEnv}))
	var all, ways []string
	for _, kind := range kinds {
		all = append(all, kind.name)
		if v.member(kind.name) != nil {
			ways = append(ways, kind.name)
		}
	}
	switch {
	case known && len(ways) == 0:
		j.fail(v.At, "action: it is empty: want %s", alternatives(all))
	case len(ways) > 1:
		j.fail(v.At, "action: %s at once: want one of them", strings.Join(ways, " and "))
	case known && v.member("pass_env") != nil && v.member("exec") == nil:
		j.fail(v.At, "action: pass_env is about the program of exec, which is not there")
	}
}

func (j *jobDecoder) passEnv(v value) {
	const example = "NATS_URL"
	j.list(v, "a list of environment variables, like [NATS_URL, NATS_CREDS]", func(item value) {
		name, ok := j.text(item, example)
		if ok && strings.ContainsAny(name, "=\x00") {
			j.fail(item.At, "%s %q: want the name of an environment variable, like %s", item.label, Clip(name), example)
			return
		}
		j.action.PassEnv = append(j.action.PassEnv, name)
	})
}

func (j *jobDecoder) exec(v value) {
	var argv []string
	right := true
	j.list(v, execExample, func(item value) {
		if item.Kind == Text && item.Scalar == "" && len(argv) > 0 {
			argv = append(argv, "") // only the program must not be empty
			return
		}
		arg, ok := j.text(item, "/bin/sh")
		if ok && strings.ContainsRune(arg, 0) {
			j.fail(item.At, "%s: it holds a zero byte, which no program can be given", item.label)
			ok = false
		}
		right = right && ok
		argv = append(argv, arg)
	})
	if v.Kind == List && len(v.Items) == 0 {
		j.fail(v.At, "%s: it is empty: want %s", v.label, execExample)
		return
	}
	if right {
		j.action.Exec = argv
	}
}

func (j *jobDecoder) nats(v value) *NATS {
	var n NATS
	known := j.object(v, []field{
		{"subject", func(v value) { n.Subject = j.subject(v) }},
		{"timeout", func(v value) { n.Timeout, _ = j.duration(v) }},
	})
	if known {
		j.needs(v, "subject")
	}
	return &n
}

// subject reads one that can be published to. The server accepts wildcards in
// it and stores them literally, so no service would receive such a request.
func (d *decoder) subject(v value) string {
	const example = "svc.report"
	s, ok := d.text(v, example)
	switch {
	case !ok:
		return ""
	case len(s) > MaxSubject:
		d.fail(v.At, "%s: %d bytes, at most %d", v.label, len(s), MaxSubject)
	case strings.ContainsAny(s, " \t\r\n\f\x00"):
		d.fail(v.At, "%s %q: want no spaces in it, like %s", v.label, Clip(s), example)
	default:
		for token := range strings.SplitSeq(s, ".") {
			switch token {
			case "":
				d.fail(v.At, "%s %q: it begins or ends with a dot, or has two in a row: want one like %s", v.label, Clip(s), example)
				return ""
			case "*", ">":
				d.fail(v.At, "%s %q: it has a wildcard, and a request goes to one subject: want one like %s", v.label, Clip(s), example)
				return ""
			}
		}
		return s
	}
	return ""
}
