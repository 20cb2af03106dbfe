package migrate

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

var (
	cronSetting = regexp.MustCompile(`^\s*("[^"]*"|'[^']*'|[A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*$`)
	// cronHalfStep matches n/m, which other parsers read as "from n on, every m-th".
	cronHalfStep = regexp.MustCompile(`(^|,)[A-Za-z0-9]+/`)
	cronEntry    = regexp.MustCompile(`^(@[^ \t]+|[^ \t]+(?:[ \t]+[^ \t]+){4})(?:[ \t]+(.*))?$`)
	// anacronEntry matches a line of an anacrontab: a period in days, a delay in minutes, a name, a command.
	anacronEntry = regexp.MustCompile(`^(\d+|@[a-z]+)[ \t]+\d+[ \t]+[A-Za-z][A-Za-z0-9._-]*[ \t]+\S`)
	cronWord     = regexp.MustCompile(`^[^ \t]+`)
	// cronToSunday matches a range of weekdays that ends with the name SUN, whose number is 0.
	cronToSunday = regexp.MustCompile(`(?i)([1-6]|mon|tue|wed|thu|fri|sat)-sun`)
	// silent has settings that are not carried over, and what replaces them. An empty one gets no
	// note.
	silent = map[string]string{
		"MAILTO":            "no mail is sent; the output is kept in the slot's record (cronce slot show), and on_failure reports failures",
		"MAILFROM":          "no mail is sent",
		"CONTENT_TYPE":      "no mail is sent",
		"RANDOM_DELAY":      "not carried over; spread delays the slots of a job",
		"START_HOURS_RANGE": "not carried over; put the hours into the schedules",
		"LOGNAME":           "not carried over; cron sets it to the name of the user",
		"USER":              "not carried over; cron sets it to the name of the user",
	}
)

// crontab is the state of reading a crontab: what the lines so far have set.
type crontab struct {
	Result
	system  bool
	zone    string
	machine string // the zone before the first CRON_TZ line
	shell   string
	home    string
	env     []spec.Variable
}

// Crontab reads a crontab: a user's, or a system one, whose sixth field is a user. zone is the time
// zone of the schedules before the first CRON_TZ line.
func Crontab(text, zone string, system bool) Result {
	c := crontab{system: system, zone: zone, machine: zone, shell: "/bin/sh", home: "~"}
	for i, line := range strings.Split(text, "\n") {
		switch trimmed := strings.TrimLeft(line, " \t"); {
		case trimmed == "" || trimmed[0] == '#':
		case cronSetting.MatchString(line):
			m := cronSetting.FindStringSubmatch(line)
			c.set(i+1, unquote(m[1]), unquote(m[2]))
		default:
			c.entry(i+1, trimmed)
		}
	}
	return c.Result
}

func (c *crontab) set(line int, name, value string) {
	why, isSilent := silent[name]
	switch {
	case name == "CRON_TZ":
		if c.zone = cmp.Or(value, c.machine); c.zone != c.machine {
			c.note(line, "", "CRON_TZ=%s: the schedules below it are in this time zone, as under cronie; the cron of Debian and Ubuntu ignores it", clip(value))
		}
	case name == "SHELL" && value != "":
		c.shell = value
	case isSilent && value == "":
	case isSilent:
		c.note(line, "", "%s: %s", name, why)
	case !settable(name, value):
		c.note(line, "", "%s: not carried over: a job file cannot have such a variable", clip(name))
	default:
		if name == "HOME" && filepath.IsAbs(value) {
			c.home = value
		}
		c.env = slices.DeleteFunc(slices.Clone(c.env), func(v spec.Variable) bool { return v.Name == name })
		c.env = append(c.env, spec.Variable{Name: name, Value: value})
	}
}

func unquote(text string) string {
	if n := len(text); n >= 2 && (text[0] == '"' || text[0] == '\'') && text[n-1] == text[0] {
		return text[1 : n-1]
	}
	return text
}

// entry reads a line with a schedule and a command.
func (c *crontab) entry(line int, text string) {
	if anacronEntry.MatchString(text) {
		c.note(line, "", "not carried over: %s is a line of an anacrontab, which has a period and no time: write a job with a time, such as schedule: \"30 3 * * *\" and catch_up: {policy: latest}", clip(strings.Join(strings.Fields(text), " ")))
		return
	}
	m := cronEntry.FindStringSubmatch(strings.TrimPrefix(text, "-")) // with - before it, cronie does not log the command
	if m == nil {
		c.note(line, "", "not carried over: it ends after %q, without a command", strings.Join(strings.Fields(text), " "))
		return
	}
	fields, rest, user := strings.FieldsFunc(m[1], isCronBlank), m[2], ""
	schedule := strings.Join(fields, " ")
	if c.system {
		user = cronWord.FindString(rest)
		rest = strings.TrimLeft(rest[len(user):], " \t")
	}
	for strings.HasPrefix(rest, "-n ") || strings.HasPrefix(rest, "-n\t") { // of cronie: send mail only if it fails
		rest = strings.TrimLeft(rest[len("-n"):], " \t")
	}
	switch {
	case rest == "":
		c.note(line, "", "not carried over: there is no command")
		return
	case rest[0] == '-':
		c.note(line, "", "not carried over: cron reads %q as an option, and not as a command", clip(cronWord.FindString(rest)))
		return
	case rest[0] == '*' || strings.HasPrefix(user, "*"):
		c.note(line, "", "not carried over: it has more than five fields before its command, and cron has no field for seconds")
		return
	case user != "" && !spec.IsAccount(user):
		c.note(line, "", "not carried over: %q is not the name of a user", clip(user))
		return
	}
	args := []string{c.shell, "-c", cronCommand(rest)}
	j := job.Job{
		Name: CommandName(LoggedCommand(args)), Schedule: schedule, Timezone: c.zone,
		Overlap: job.OverlapAllow, Retry: job.Retry{Attempts: 1}, CatchUp: job.CatchUp{Policy: job.CatchUpNone},
	}
	fields, long := withoutLongSteps(fields)
	j.Schedule = strings.Join(fields, " ")
	if err := cronTimes(&j, fields); err != nil {
		c.note(line, "", "not carried over: %v", err)
		return
	}
	if long != "" && (strings.HasPrefix(m[1], "*") || strings.HasPrefix(strings.Fields(m[1])[1], "*")) {
		setElapsed(&j)
	}
	entry := jobfile.Imported{
		Job: j, Exec: spec.Exec{Args: args, Env: c.env, Dir: c.home, User: user},
		Line: line, Comments: []string{fmt.Sprintf("line %d: %s", line, clip(strings.Join(strings.Fields(text), " ")))},
	}
	name := c.add(entry)
	if name != "" && long != "" {
		c.note(line, name, "%s: the step is longer than its range, so cron runs it at the first value only, as here; if that was not meant, write what was", long)
	}
	if name != "" && len(fields) == 5 && cronToSunday.MatchString(fields[4]) {
		c.note(line, name, "%s includes Sunday here, as under cronie; the cron of Debian and Ubuntu reads such a range as no day", fields[4])
	}
}

// withoutLongSteps replaces a step of minutes, hours or months that is longer than the field by the first
// value, at which alone it runs. long is the first such field.
func withoutLongSteps(fields []string) (changed []string, long string) {
	if len(fields) != 5 {
		return fields, ""
	}
	changed = slices.Clone(fields)
	for i, f := range map[int]calendarField{0: {"minute", 0, 59}, 1: {"hour", 0, 23}, 3: {"month", 1, 12}} {
		base, by, stepped := strings.Cut(fields[i], "/")
		first, _, isRange := strings.Cut(base, "-")
		step, err := strconv.Atoi(by)
		if !stepped || err != nil || step <= f.high-f.low+1 || base != "*" && !isRange {
			continue
		}
		if base == "*" {
			first = strconv.Itoa(f.low)
		}
		changed[i], long = first, cmp.Or(long, fields[i])
	}
	return changed, long
}

// isCronBlank reports whether cron ends a field at r. Go ends fields at further characters, such as a
// space of another width.
func isCronBlank(r rune) bool { return r == ' ' || r == '\t' }

// hasForeign reports whether a field has a character that no field of cron can have.
func hasForeign(field string) bool {
	return strings.ContainsFunc(field, func(r rune) bool { return r < '!' || r > '~' })
}

// cronTimes sets a schedule that has the same slots as the fields have in cron.
func cronTimes(j *job.Job, fields []string) error {
	if i := slices.IndexFunc(fields, hasForeign); i >= 0 {
		return fmt.Errorf("cron does not know a character of %q: separate the fields by spaces or tabs", clip(fields[i]))
	}
	if len(fields) == 1 {
		switch fields[0] {
		case "@every":
			return fmt.Errorf("cron does not know @every: write */5 * * * * for every fifth minute, or schedule: \"@every 5m\" in the job file")
		case "@every_minute": // of FreeBSD
			j.Schedule = "* * * * *"
			setElapsed(j)
			return nil
		case "@every_second":
			j.Schedule = "* * * * * *"
			setElapsed(j)
			return nil
		case "@reboot":
			return fmt.Errorf("@reboot is not a time: start the command as a service, or with the service that starts cronce run")
		}
		if seconds, err := strconv.Atoi(strings.TrimPrefix(fields[0], "@")); err == nil {
			return fmt.Errorf("%s is an interval from the end of the last run (FreeBSD): write schedule: \"@every %ds\" in the job file", fields[0], seconds)
		}
		return nil
	}
	for _, f := range fields {
		switch {
		case strings.Contains(f, "?"):
			return fmt.Errorf("%s: cron does not know the question mark: write *", f)
		case strings.Contains(f, "~"):
			return fmt.Errorf("%s is a random time: write H for a time that depends on the job's name and is the same each day, or H(0-29) for one in a range", f)
		case cronHalfStep.MatchString(f):
			return fmt.Errorf("%s: cron rejects or ignores a step without a range: write a range before the step, like 5-59/15, or no step", f)
		}
	}
	for _, f := range []string{fields[2], fields[4]} {
		if strings.LastIndex(f, "*") > 0 {
			return fmt.Errorf("%s: cron reads a star that is not first as a list of all days; write them out", f)
		}
	}
	if f := fields[4]; cronToSunday.MatchString(f) && strings.Contains(f, "-") && strings.Contains(f, "/") {
		return fmt.Errorf("%s: cron reads a range with a step that ends with SUN as no day: write 7 for SUN", f)
	}
	if strings.HasPrefix(fields[0], "*") || strings.HasPrefix(fields[1], "*") {
		setElapsed(j)
	}
	dom, dow := fields[2], fields[4]
	stepped := strings.HasPrefix(dom, "*") && dom != "*" || strings.HasPrefix(dow, "*") && dow != "*"
	if !stepped || dom == "*" || dow == "*" {
		return nil
	}
	// Both day fields must match. The schedule has the day of the month, and the weekdays that the
	// other field leaves out are excluded.
	others, err := otherWeekdays(dow)
	if err != nil {
		return err
	}
	j.Schedule = strings.Join([]string{fields[0], fields[1], dom, fields[3], "*"}, " ")
	if others != "" {
		j.Exclude = []string{"* * * * " + others}
	}
	return nil
}

// otherWeekdays returns the days of the week that a field leaves out.
func otherWeekdays(field string) (string, error) {
	if strings.ContainsAny(field, "#") || strings.HasSuffix(strings.ToUpper(field), "L") {
		return "", fmt.Errorf("%s: no counterpart together with a day of the month that must match too", field)
	}
	var others []string
	for day := range 7 {
		s, err := job.ParseSchedule("x", job.Plan{Schedule: "0 0 * * " + field})
		if err != nil {
			return "", err
		}
		if !s.Includes(sunday.AddDate(0, 0, day)) {
			others = append(others, strconv.Itoa(day))
		}
	}
	return strings.Join(others, ","), nil
}

// The text before and after the standard input of a command, and after the command.
const (
	inputFrom = `printf '%s\n' `
	inputTo   = " | {\n"
	inputEnd  = "\n}"
)

// cronCommand returns a crontab's command for a shell. A percent sign without a backslash before it
// ends the command. The text after it is the standard input of the command, in which further
// percent signs are line breaks.
func cronCommand(text string) string {
	var parts []string
	var part strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text) && text[i+1] == '%':
			part.WriteByte('%')
			i++
		case text[i] == '\\' && i+1 < len(text) && len(parts) == 0: // in the command, the next one is an escaped one
			part.WriteString(text[i : i+2])
			i++
		case text[i] == '%':
			parts = append(parts, part.String())
			part.Reset()
		default:
			part.WriteByte(text[i])
		}
	}
	parts = append(parts, part.String())
	command, input := parts[0], parts[1:]
	if len(input) == 0 {
		return command
	}
	if len(input) > 1 && input[len(input)-1] == "" {
		input = input[:len(input)-1] // printf adds a line break after the last line
	}
	quoted := codec.Map(input, shellQuoted)
	return inputFrom + strings.Join(quoted, " ") + inputTo + command + inputEnd
}

// LoggedCommand returns what cron logs when it starts the command of an imported job: without its
// standard input. It is empty if the arguments are not those of a crontab's job.
func LoggedCommand(args []string) string {
	if len(args) != 3 || args[1] != "-c" {
		return ""
	}
	command := args[2]
	if strings.HasPrefix(command, inputFrom) {
		if _, inner, ok := strings.Cut(command, inputTo); ok {
			return strings.TrimSuffix(inner, inputEnd)
		}
	}
	return command
}

func clip(text string) string {
	const most = 100
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "..."
	}
	return text
}
