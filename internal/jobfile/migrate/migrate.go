package migrate

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/job"
)

// MaxSize is how much of a file is read, in bytes.
const MaxSize = 4 << 20

// sunday is one.
var sunday = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

// Note is something that was not carried over.
type Note struct {
	// Line is where it stood, from 1.
	Line int

	// Job is the name of the job that lacks it; empty when there is no job.
	Job string

	// Text says what it is, and what to do instead where there is something.
	Text string
}

// Result is what a file has become.
type Result struct {
	Jobs  []jobfile.Imported
	Notes []Note
}

func (r *Result) note(line int, name, format string, args ...any) {
	r.Notes = append(r.Notes, Note{line, name, fmt.Sprintf(format, args...)})
}

// add takes a job that is right, under a name that is not taken.
func (r *Result) add(line int, j jobfile.Imported) {
	j.Job.Name = r.free(j.Job.Name)
	if err := j.Job.Validate(); err != nil {
		r.note(line, "", "not carried over: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	r.Jobs = append(r.Jobs, j)
}

// free is the name, with a number if it is taken.
func (r *Result) free(name string) string {
	taken := func(name string) bool {
		for _, j := range r.Jobs {
			if j.Job.Name == name {
				return true
			}
		}
		return false
	}
	for n, base := 2, name; taken(name); n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	return name
}

const maxSlug = 40

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

// slug makes a job's name of a command, without where its input and output go: "backup"
// of "/usr/bin/backup.sh --all >>/var/log/backup.log 2>&1".
func slug(command string) string {
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
	name := strings.Join(words, "-")
	if len(name) > maxSlug {
		name = strings.TrimRight(name[:maxSlug], "-")
	}
	if name == "" {
		return "job"
	}
	return name
}

// withEnvironment has a command run with variables set.
func withEnvironment(variables []string, argv []string) []string {
	if len(variables) == 0 {
		return argv
	}
	return append(append([]string{"/usr/bin/env"}, variables...), argv...)
}

// elapsed are the settings of a schedule whose job ran whenever the clock showed its
// time: not in a gap, and twice where the clock shows it twice.
func elapsed(j *job.Job) { j.DSTGap, j.DSTOverlap = job.GapSkip, job.RepeatBoth }
