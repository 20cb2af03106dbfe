package migrate

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

// longest bounds an interval.
const longest = 100 * 366 * 24 * time.Hour

// MaxSize is the largest file that is read, in bytes.
const MaxSize = 4 << 20

// sunday is a Sunday, from which otherWeekdays counts.
var sunday = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

// Note reports something that was not carried over, or that is different.
type Note struct {
	// Line is the line of the imported file, from 1.
	Line int

	// File is the imported file, if there are several.
	File string

	// Job is the name of the job that the note is about, even if the job was not carried over. Empty:
	// the note is about no job, or the job has no name.
	Job string

	// Of is the line of that job, if it differs from Line. Zero: it is Line.
	Of int

	// Text says what was not carried over, and what you can do instead.
	Text string
}

// Result is the result of importing a file.
type Result struct {
	Jobs  []jobfile.Imported
	Notes []Note

	names map[string]int // by name of a job: up to which number it is taken, at least 1
}

func (r *Result) note(line int, name, format string, args ...any) {
	r.Notes = append(r.Notes, Note{Line: line, Job: name, Text: fmt.Sprintf(format, args...)})
}

// add adds a job if it is valid, under a name that no other job has. It returns that name, or "" if
// the job was not carried over.
func (r *Result) add(j jobfile.Imported) (name string) {
	j.Job.Name = r.free(j.Job.Name)
	if hashed.MatchString(j.Job.Schedule) {
		r.note(j.Line, "", "not carried over: schedule %s: only Cronce and Jenkins know H", clip(j.Job.Schedule))
		return ""
	}
	if neverFires(j.Job) {
		r.note(j.Line, j.Job.Name, "schedule %s never fires: imported as a job that runs only when it is triggered", j.Job.Schedule)
		j.Job.Schedule, j.Job.Timezone, j.Job.CatchUp, j.Job.DSTGap, j.Job.DSTOverlap, j.Job.Exclude = job.OnDemand, "", job.CatchUp{}, "", "", nil
	}
	if followsElapsedTime(j.Job) {
		j.Job.DSTGap, j.Job.DSTOverlap = "", ""
	}
	if err := j.Job.Validate(); err != nil {
		r.note(j.Line, "", "not carried over: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
		return ""
	}
	if !isText(j.Exec) {
		r.note(j.Line, j.Job.Name, "not carried over: its command or a variable is not UTF-8 text, which a job file cannot contain")
		return ""
	}
	r.Jobs = append(r.Jobs, j)
	if r.names == nil {
		r.names = map[string]int{}
	}
	r.names[j.Job.Name] = 1
	return j.Job.Name
}

// hashed matches H, which stands for a time that depends on the job's name. No name of a month or a
// day begins with H.
var hashed = regexp.MustCompile(`(^|[ ,])H`)

// isText reports whether a job file can contain the command.
func isText(e spec.Exec) bool {
	all := append([]string{e.Dir, e.User, e.Group}, e.Args...)
	for _, v := range e.Env {
		all = append(all, v.Name, v.Value)
	}
	return !slices.ContainsFunc(all, func(s string) bool { return !utf8.ValidString(s) || strings.ContainsRune(s, 0) })
}

// neverFires reports whether no year has the dates of the schedule, like 0 0 31 2 *. People write
// such a schedule for a job that they start by hand.
func neverFires(j job.Job) bool {
	_, err := job.ParseSchedule(j.Name, job.Plan{Schedule: j.Schedule, Exclude: j.Exclude})
	return err != nil && strings.Contains(err.Error(), "can never fire")
}

// free returns the name, with a number if another job has the name.
func (r *Result) free(name string) string {
	for base := name; r.names[name] > 0; {
		n := r.names[base] + 1
		name = fmt.Sprintf("%s-%d", base, n)
		if r.names[name] > 0 {
			r.names[base] = n
		}
	}
	return name
}

// The longest names, in bytes: maxName of any job, and maxCommandName of one that is named after its
// command.
const (
	maxName        = 64
	maxCommandName = 40
)

var (
	unnamed    = regexp.MustCompile(`[^A-Za-z0-9_]+`)
	extension  = regexp.MustCompile(`\.(sh|bash|py|rb|pl|php|js|ts|jar)$`)
	assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
	redirected = regexp.MustCompile(`(&|[0-9]+)?(>>|>\||<<<|>|<)\s*(&[0-9-]+|&?("[^"]*"|'[^']*'|[^\s;|&<>()"']+))`)
	separator  = regexp.MustCompile(`[\s;|&<>()"'` + "`" + `]+`)
	wrapper    = map[string]bool{
		"cd": true, "test": true, "exec": true, "nice": true, "ionice": true, "env": true, "sh": true, "bash": true, "root": true, "command": true,
		"sudo": true, "flock": true, "timeout": true, "if": true, "then": true, "else": true, "fi": true, "true": true, "-x": true, "chronic": true,
	}
)

// CommandName returns the name that Crontab gives to a job with the command, as cron logs it:
// "backup" for "/usr/bin/backup.sh --all >>/var/log/backup.log 2>&1".
func CommandName(command string) string {
	command = redirected.ReplaceAllString(command, " ")
	var words []string
	for _, word := range separator.Split(command, -1) {
		base := extension.ReplaceAllString(path.Base(word), "")
		if word == "" || strings.HasPrefix(word, "-") || assignment.MatchString(word) || wrapper[base] || strings.HasPrefix(word, "/dev/") {
			continue
		}
		if part := strings.Trim(unnamed.ReplaceAllString(base, "-"), "-"); part != "" {
			words = append(words, part)
		}
		if len(words) == 3 {
			break
		}
	}
	return atMost(maxCommandName, strings.Join(words, "-"))
}

// UnitName turns the name of a job elsewhere, such as a service of systemd without ".service", into a
// valid name of a job.
func UnitName(unit string) string {
	return atMost(maxName, strings.Trim(unnamed.ReplaceAllString(unit, "-"), "-"))
}

// atMost cuts a name, and returns "job" for an empty one.
func atMost(length int, name string) string {
	if len(name) > length {
		name = strings.TrimRight(name[:length], "-")
	}
	return cmp.Or(name, "job")
}

// settable reports whether a job file can contain the variable.
func settable(name, value string) bool {
	return spec.IsVariableName(name) && !slices.Contains(spec.SlotVariables, name) &&
		len(value) <= spec.MaxVariable && !strings.ContainsRune(value, 0)
}

// followsElapsedTime reports whether clock changes have no effect on a schedule: its zone has none,
// or its hour field begins with a star.
func followsElapsedTime(j job.Job) bool {
	if j.Timezone == "" || j.Timezone == "UTC" || j.Timezone == "Etc/UTC" {
		return true
	}
	fields := strings.Fields(j.Schedule)
	return len(fields) >= 5 && strings.HasPrefix(fields[len(fields)-4], "*")
}

// fromEpoch is the text of a note that an interval counts from 1970. was is what it counted from.
func fromEpoch(schedule, was string) string {
	return fmt.Sprintf("%s counts from 1970, not from %s: write a cron expression if the minute matters", schedule, was)
}

// setElapsed sets the policies of a job that ran whenever the clock showed its time: it did not run
// if its time was in a gap, and it ran twice if its time occurred twice.
func setElapsed(j *job.Job) { j.DSTGap, j.DSTOverlap = job.GapSkip, job.RepeatBoth }
