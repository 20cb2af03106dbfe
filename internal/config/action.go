package config

import "strings"

const execExample = `a list of a program and its arguments, like ["/bin/sh", "-c", "make report"]`

// decodeAction wants exactly one way to act.
func (j *jobDecoder) decodeAction(v value) {
	known := j.object(v, []field{{"exec", j.exec}, {"http", j.http}, {"nats", j.nats}})
	var ways []string
	for _, name := range []string{"exec", "http", "nats"} {
		if v.member(name) != nil {
			ways = append(ways, name)
		}
	}
	switch {
	case known && len(ways) == 0:
		j.fail(v.at, "action: it is empty: want exec")
	case len(ways) > 1:
		j.fail(v.at, "action: %s at once: want one of them", strings.Join(ways, " and "))
	}
}

func (j *jobDecoder) exec(v value) {
	var argv []string
	right := true
	j.list(v, execExample, func(item value) {
		if item.kind == text && item.scalar == "" && len(argv) > 0 {
			argv = append(argv, "") // only the program must not be empty
			return
		}
		arg, ok := j.text(item, "/bin/sh")
		if ok && strings.ContainsRune(arg, 0) {
			j.fail(item.at, "%s: it holds a zero byte, which no program can be given", item.label)
			ok = false
		}
		right = right && ok
		argv = append(argv, arg)
	})
	if v.kind == list && len(v.items) == 0 {
		j.fail(v.at, "%s: it is empty: want %s", v.label, execExample)
		return
	}
	if right {
		j.action.Exec = argv
	}
}
