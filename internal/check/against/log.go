// Package against compares the slots of the ledger with the log of another scheduler: which runs
// both have, and which only one of them has. It is pure: the caller passes lines and slots.
//
// # Which run belongs to which slot
//
// A line of a log says when a run started, and not which slot it was. So a run belongs to the
// slot of its job that is nearest in time, if that is no further away than the tolerance. A run
// may also belong to a slot that did not run (skipped, missed, expired). It is then a difference,
// and the slot's state explains it. If several runs belong to one slot, the nearest counts and the
// others are differences.
//
// If two jobs have the same command, the log does not distinguish them, and their slots are one
// list.
package against

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/text/plain"
)

// Run is a start of a job in a log. One of Job, Command and Unit is set.
type Run struct {
	Time time.Time
	Line int // from 1

	// Job is the name of the job in the line.
	Job string

	// Command is the command that cron started for User, as cron logs it.
	Command, User string

	// Unit is the service that systemd started, without ".service".
	Unit string
}

// Log is what was read of a log.
type Log struct {
	Runs []Run

	// First and Last are the earliest and the latest time of any line, of a run or not.
	First, Last time.Time

	// Other is how many lines have a time and concern something else.
	Other int

	// Unknown is how many lines were not understood. FirstUnknown is the number of the first.
	Unknown, FirstUnknown int
}

// These bound a line, in bytes. A line that is longer than longestLine is not understood. A file with
// a line that is longer than endlessLine is not a log, and may never end, like /dev/zero.
const (
	longestLine = 1 << 20
	endlessLine = 64 << 20
)

var (
	rfc3339 = regexp.MustCompile(`^(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)([.,]\d+)?(Z|[+-]\d\d:?\d\d)?\s+`)
	syslog  = regexp.MustCompile(`^(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d\s+`)
	daemon  = regexp.MustCompile(`^\S+ ([^\s\[\]:]+)(?:\[\d+\])?: (.*)$`)
	// cron logs the blanks between the user and the command of a system crontab, but for the first one.
	cronStart = regexp.MustCompile(`^\(([^\s()]+)\) CMD \(\s*(.*)\)$`)
	// cronCut matches the beginning of such a line that a syslog has cut off.
	cronCut   = regexp.MustCompile(`^\([^\s()]+\) CMD \(`)
	unitStart = regexp.MustCompile(`^(Starting|Started|Finished|Failed to start) (\S+)\.service(?:\.|\.\.\.| - .*)?$`)
	crons     = map[string]bool{"cron": true, "crond": true}
)

// Read reads a log. Each line is a time and the name of a job, or a line of syslog or of
// "journalctl -o short-iso" in which cron starts a command or systemd a service. A time without a zone
// is in zone. A time without a year, as in a syslog, gets the latest year in which it is less than a
// day after now. named maps a name in the log to the job's name if they differ, and returns ""
// otherwise.
func Read(r io.Reader, now time.Time, zone *time.Location, named func(text string) string) (Log, error) {
	l := reader{starting: map[string]bool{}, now: now, zone: zone, named: named}
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		if begin, _ := in.Peek(2); l.line == 0 && plain.IsUTF16(begin) {
			return l.Log, errors.New("the log is in UTF-16: save it as UTF-8")
		}
		line, long, err := nextLine(in)
		if err != nil && err != io.EOF {
			return l.Log, fmt.Errorf("line %d: %w", l.line+1, err)
		}
		if err == nil || line != "" || long {
			l.line++
			l.read(line, long)
		}
		if err == io.EOF {
			return l.Log, nil
		}
	}
}

// nextLine reads a line without its line break. If the line is too long, long is true and the text
// is incomplete.
func nextLine(in *bufio.Reader) (line string, long bool, err error) {
	var b []byte
	for length := 0; ; {
		part, prefix, err := in.ReadLine()
		if length += len(part); length > endlessLine {
			err = fmt.Errorf("longer than %d MiB: want a log with a line for each run", endlessLine>>20)
		}
		if err != nil {
			return string(b), long, err
		}
		if long = long || len(b)+len(part) > longestLine; !long {
			b = append(b, part...)
		}
		if !prefix {
			return string(b), long, nil
		}
	}
}

type reader struct {
	Log
	line     int
	starting map[string]bool // units with a line "Starting" and no line "Started" yet
	now      time.Time
	zone     *time.Location
	named    func(text string) string
}

func (l *reader) read(line string, long bool) {
	line = strings.TrimSpace(plain.Line(line))
	if !long && (line == "" || line[0] == '#' || strings.HasPrefix(line, "-- ")) {
		return // "-- Boot ... --" of journalctl
	}
	at, rest, ok := l.time(line)
	if long || !ok {
		l.unknown()
		return
	}
	run, known := l.run(rest)
	if !known {
		l.unknown()
		return
	}
	if l.First.IsZero() || at.Before(l.First) {
		l.First = at
	}
	if at.After(l.Last) {
		l.Last = at
	}
	if run == (Run{}) {
		l.Other++
		return
	}
	run.Time, run.Line = at, l.line
	l.Runs = append(l.Runs, run)
}

func (l *reader) unknown() {
	if l.Unknown++; l.Unknown == 1 {
		l.FirstUnknown = l.line
	}
}

func (l *reader) time(line string) (at time.Time, rest string, ok bool) {
	if m := rfc3339.FindStringSubmatch(line); m != nil {
		layout, zone := time.RFC3339, m[3]
		switch len(zone) {
		case 0:
			layout = "2006-01-02T15:04:05"
		case 5: // +0100, as journalctl writes it
			zone = zone[:3] + ":" + zone[3:]
		}
		at, err := time.ParseInLocation(layout, strings.Replace(m[1], " ", "T", 1)+strings.Replace(m[2], ",", ".", 1)+zone, l.zone)
		return at.UTC(), line[len(m[0]):], err == nil
	}
	stamp := syslog.FindString(line)
	if stamp == "" {
		return at, "", false
	}
	text := strings.TrimSpace(stamp)
	for year := l.now.Year() + 1; year >= l.now.Year()-4; year-- { // 29 February may be four years ago
		at, err := time.ParseInLocation("2006 Jan _2 15:04:05", time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Format("2006 ")+text, l.zone)
		if err == nil && at.Before(l.now.Add(24*time.Hour)) {
			return at.UTC(), line[len(stamp):], true
		}
	}
	return at, "", false
}

// run reads the part of a line after its time. If the line is about something else, it returns the zero
// Run.
func (l *reader) run(text string) (run Run, known bool) {
	if name := l.named(text); name != "" {
		return Run{Job: name}, true
	}
	if codec.ValidateName("job", text) == nil {
		return Run{Job: text}, true
	}
	m := daemon.FindStringSubmatch(text)
	if m == nil {
		return run, false
	}
	switch name := strings.ToLower(m[1]); {
	case crons[name]:
		if c := cronStart.FindStringSubmatch(m[2]); c != nil {
			run = Run{User: c[1], Command: c[2]}
		} else if cronCut.MatchString(m[2]) {
			return run, false
		}
	case name == "systemd":
		if u := unitStart.FindStringSubmatch(m[2]); u != nil && l.starts(u[1], u[2]) {
			run = Run{Unit: u[2]}
		}
	}
	return run, true
}

// starts reports whether the line is the start of a run. A service of the type oneshot has a line
// "Starting" and, when it has ended, a line "Finished", or "Started" with old versions of systemd.
// Services of other types have only a line "Started".
func (l *reader) starts(what, unit string) bool {
	was := l.starting[unit]
	l.starting[unit] = what == "Starting"
	return what == "Starting" || what == "Started" && !was
}
