package migrate

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/jobfile/migrate/unitfile"
	"github.com/cronce-io/cronce/job"
)

type systemd struct {
	Result
	zone  string
	units map[string]*unitfile.Unit
	order []string
}

// Systemd reads timers and the services that they start. A file may be the output of "systemctl
// cat". zone is the time zone of calendar expressions that name none.
func Systemd(files []unitfile.File, zone string) Result {
	s := systemd{zone: zone, units: map[string]*unitfile.Unit{}}
	// systemctl cat prints a service, or a template, once for each unit that it is asked for.
	known := map[[2]string]bool{}
	for _, part := range inOrder(files) {
		key := [2]string{part.Path, strings.TrimSpace(part.Text)}
		if !known[key] {
			s.read(part)
		}
		known[key] = true
	}
	for _, u := range s.units {
		u.Settle()
	}
	used := map[string]bool{}
	for _, name := range s.order {
		if path.Ext(name) == ".timer" {
			service := s.timer(s.units[name])
			used[service], used[Template(service)] = true, true
		}
	}
	for _, name := range s.order {
		if path.Ext(name) == ".service" && !used[name] {
			s.at(place(s.units[name]), "", 0, "%s: none of the imported timers starts it", name)
		}
	}
	return s.Result
}

// inOrder returns the parts of files in the order in which systemd reads them: the drop-ins of a unit come
// after it, by name. The units stay in the order of the files.
func inOrder(files []unitfile.File) (parts []unitfile.File) {
	first := map[string]int{} // by unit
	for _, f := range files {
		for _, part := range unitfile.Split(f) {
			if _, known := first[part.Unit()]; !known {
				first[part.Unit()] = len(first)
			}
			parts = append(parts, part)
		}
	}
	slices.SortStableFunc(parts, func(a, b unitfile.File) int {
		if c := cmp.Compare(first[a.Unit()], first[b.Unit()]); c != 0 || !a.IsDropIn() && !b.IsDropIn() {
			return c
		}
		if a.IsDropIn() != b.IsDropIn() {
			return map[bool]int{true: 1, false: -1}[a.IsDropIn()]
		}
		return strings.Compare(path.Base(a.Path), path.Base(b.Path))
	})
	return parts
}

// ServiceOf returns the name of the service that a timer starts.
func ServiceOf(files []unitfile.File, timer string) string {
	s := systemd{units: map[string]*unitfile.Unit{}}
	for _, part := range inOrder(files) {
		if part.Unit() == timer {
			s.read(part)
		}
	}
	return serviceOf(cmp.Or(s.units[timer], &unitfile.Unit{Name: timer}))
}

func serviceOf(t *unitfile.Unit) string {
	if u, ok := t.Last("Timer", "Unit"); ok {
		return t.Expand(u.Value, ignored)
	}
	return t.Stem() + ".service"
}

func (s *systemd) read(f unitfile.File) {
	name := f.Unit()
	if ext := path.Ext(name); ext != ".timer" && ext != ".service" {
		s.at(unitfile.Setting{File: f.File, Line: f.Line + 1}, "", 0, "not carried over: %s is neither a timer nor a service", clip(name))
		return
	}
	u := s.units[name]
	if u == nil {
		u = &unitfile.Unit{Name: name}
		s.units[name] = u
		s.order = append(s.order, name)
	}
	u.HasFile = u.HasFile || !f.IsDropIn()
	u.Read(f, func(line int, text string) {
		s.at(unitfile.Setting{File: f.File, Line: line}, "", 0, "not carried over: %q is not a setting", clip(text))
	})
}

// place returns where a unit begins.
func place(u *unitfile.Unit) unitfile.Setting {
	if len(u.Settings) == 0 {
		return unitfile.Setting{Line: 1}
	}
	return u.Settings[0]
}

// at adds a note about a line. of is the line of the job if it differs, else 0.
func (s *systemd) at(where unitfile.Setting, name string, of int, format string, args ...any) {
	s.Notes = append(s.Notes, Note{Line: where.Line, File: where.File, Job: name, Of: of, Text: fmt.Sprintf(format, args...)})
}

// timer reads a timer, and returns the name of its service.
func (s *systemd) timer(t *unitfile.Unit) (service string) {
	service = serviceOf(t)
	svc := s.service(service)
	if stem := t.Stem(); strings.HasSuffix(stem, "@") {
		s.at(place(t), stem, 0, "not carried over: it is a template without an instance: copy it to %sINSTANCE.timer", clip(stem))
		return service
	}
	if svc == nil {
		s.at(place(t), t.Stem(), 0, "not carried over: its service %s is not among the imported files: import the output of systemctl cat %s %s", clip(service), clip(t.Name), clip(service))
		return service
	}
	c := serviceCommand{unit: svc}
	c.read()
	if c.why != "" {
		s.at(c.at, t.Stem(), 0, "not carried over: %s", c.why)
		return service
	}
	// The job has the name of the service, because the journal names the service and not the timer.
	j := job.Job{Name: UnitName(strings.TrimSuffix(service, ".service")), Overlap: job.OverlapSkip, Retry: job.Retry{Attempts: 1}, CatchUp: job.CatchUp{Policy: job.CatchUpNone}, Timeout: c.timeout}
	dropped := s.timing(t, &j)
	var jobs []timed
	for _, cal := range t.All("Timer", "OnCalendar") {
		one := j
		if err := onCalendar(&one, t.Expand(cal.Value, ignored), s.zone); err != nil {
			s.at(cal, t.Stem(), 0, "not carried over: OnCalendar=%s: %v", clip(cal.Value), err)
			continue
		}
		jobs = append(jobs, timed{one, cal, ""})
	}
	if shortest := s.repeat(t, j); shortest != nil {
		jobs = append(jobs, *shortest)
	}
	s.convert(t, c, jobs, dropped)
	return service
}

// repeat returns the job of the timer's shortest OnUnitActiveSec or OnUnitInactiveSec, or nil. Each
// start of the unit sets all of them back, so the longer ones never elapse.
func (s *systemd) repeat(t *unitfile.Unit, j job.Job) (shortest *timed) {
	j.CatchUp.Policy = job.CatchUpNone
	var least time.Duration
	var longer []unitfile.Setting
	for _, key := range []string{"OnUnitActiveSec", "OnUnitInactiveSec"} {
		for _, rep := range t.All("Timer", key) {
			one := j
			d, ok := timeSpan(t.Expand(rep.Value, ignored))
			why := fmt.Sprintf("%q is not a time span", clip(rep.Value))
			if ok {
				why = every(&one, d)
			}
			if why != "" {
				s.at(rep, t.Stem(), 0, "not carried over: %s=%s: %s", key, clip(rep.Value), why)
				continue
			}
			if shortest != nil && d >= least {
				longer = append(longer, rep)
				continue
			}
			if shortest != nil {
				longer = append(longer, shortest.at)
			}
			from := "the last start"
			if key == "OnUnitInactiveSec" {
				from = "the end of the last run"
			}
			least, shortest = d, &timed{one, rep, fromEpoch(one.Schedule, from)}
		}
	}
	for _, rep := range longer {
		s.at(rep, t.Stem(), 0, "not carried over: %s=%s never elapses, because %s=%s is not longer", rep.Key, clip(rep.Value), shortest.at.Key, clip(shortest.at.Value))
	}
	return shortest
}

// service returns a service, or nil. If it has no file of its own, it is made from its template, and the
// drop-ins of the instance apply after it.
func (s *systemd) service(name string) *unitfile.Unit {
	own, template := s.units[name], s.units[Template(name)]
	switch {
	case own != nil && own.HasFile:
		return own
	case template == nil:
		return nil
	case own == nil:
		own = &unitfile.Unit{}
	}
	made := &unitfile.Unit{Name: name, HasFile: true, Settings: slices.Concat(template.Settings, own.Settings)}
	made.Settle()
	return made
}

// Template returns the name of the template of a unit like backup@db.service, or "".
func Template(name string) string {
	prefix, instance, isInstance := strings.Cut(name, "@")
	if !isInstance || strings.TrimSuffix(instance, path.Ext(instance)) == "" {
		return ""
	}
	return prefix + "@" + path.Ext(name)
}

// timed is a job of a timer, with the line of its schedule.
type timed struct {
	job  job.Job
	at   unitfile.Setting
	note string
}

// droppedSetting is a setting that was not carried over.
type droppedSetting struct {
	at   unitfile.Setting
	text string
}

// isIgnored reports whether a setting has no effect on when or how a job runs here. Those of the section
// Install have none: a job runs if it is in the file.
func isIgnored(u unitfile.Setting) bool {
	return u.Value == "" ||
		u.Section == "Install" && slices.Contains([]string{"WantedBy", "RequiredBy", "UpheldBy", "Also", "Alias", "DefaultInstance"}, u.Key) ||
		u.Section == "Unit" && slices.Contains([]string{"Description", "Documentation", "SourcePath"}, u.Key)
}

// repeats are the settings of a timer that become jobs.
var repeats = []string{"OnCalendar", "OnUnitActiveSec", "OnUnitInactiveSec"}

// timing reads the settings of a timer that apply to all its expressions.
func (s *systemd) timing(t *unitfile.Unit, j *job.Job) (dropped []droppedSetting) {
	drop := func(u unitfile.Setting, format string, args ...any) {
		dropped = append(dropped, droppedSetting{u, fmt.Sprintf(format, args...)})
	}
	fixed, _ := t.Last("Timer", "FixedRandomDelay")
	for _, u := range t.Settings {
		switch key := u.Section + "." + u.Key; {
		case isIgnored(u):
		case u.Section == "Timer" && slices.Contains(repeats, u.Key) || key == "Timer.Unit" || key == "Timer.FixedRandomDelay":
		case key == "Timer.Persistent":
			if j.CatchUp.Policy = job.CatchUpNone; unitfile.IsTrue(u.Value) {
				j.CatchUp.Policy = job.CatchUpLatest
				drop(u, "Persistent=%s: here a missed run is caught up if it is no older than the horizon, 24 h", u.Value)
			}
		case key == "Timer.RandomizedDelaySec":
			d, ok := timeSpan(u.Value)
			d = d.Truncate(time.Second)
			switch {
			case !ok:
				drop(u, "not carried over: RandomizedDelaySec=%s is not a time span", clip(u.Value))
			case d > job.MaxSpread:
				drop(u, "RandomizedDelaySec=%s: spread is at most %v", clip(u.Value), job.MaxSpread)
			case d > 0:
				if j.Spread = d; !unitfile.IsTrue(fixed.Value) {
					drop(u, "RandomizedDelaySec=%s delays each run by a new random time; with spread, a job always has the same delay", clip(u.Value))
				}
			}
		case key == "Timer.AccuracySec":
			drop(u, "AccuracySec=%s: a slot starts when it is due; spread delays the slots of a job", clip(u.Value))
		case key == "Timer.OnBootSec" || key == "Timer.OnStartupSec" || key == "Timer.OnActiveSec":
			drop(u, "%s=%s is not a wall-clock time: start the command as a service, or run cronce job trigger %s", u.Key, clip(u.Value), j.Name)
		case key == "Timer.RemainAfterElapse" || key == "Timer.WakeSystem" && !unitfile.IsTrue(u.Value):
		default:
			drop(u, "not carried over: %s=%s", u.Key, clip(u.Value))
		}
	}
	return dropped
}

func (s *systemd) convert(t *unitfile.Unit, c serviceCommand, jobs []timed, dropped []droppedSetting) {
	if len(jobs) == 0 {
		for _, l := range dropped {
			s.at(l.at, t.Stem(), 0, "not carried over: %s", strings.TrimPrefix(l.text, "not carried over: "))
		}
		if len(dropped) == 0 && !slices.ContainsFunc(repeats, func(key string) bool { return len(t.All("Timer", key)) > 0 }) {
			s.at(place(t), t.Stem(), 0, "not carried over: it has no OnCalendar and no OnUnitActiveSec")
		}
		return
	}
	dropped = append(dropped, c.dropped...)
	for i, one := range jobs {
		about := []string{fmt.Sprintf("%s, %s=%s", t.Name, one.at.Key, clip(one.at.Value))}
		for _, u := range []*unitfile.Unit{t, c.unit} {
			if d, ok := u.Last("Unit", "Description"); ok {
				about = append(about, clip(u.Expand(d.Value, ignored)))
			}
		}
		entry := jobfile.Imported{Job: one.job, Exec: c.exec, Line: one.at.Line, File: one.at.File, Comments: slices.Compact(about)}
		added := s.add(entry)
		if added == "" {
			continue
		}
		if one.note != "" {
			s.at(one.at, added, 0, "%s", one.note)
		}
		if i > 0 {
			s.at(one.at, added, 0, "it is one of the %d times of %s: here each is a job of its own, and they may run at the same time", len(jobs), t.Name)
		} else if added != t.Stem() {
			s.at(one.at, added, 0, "its name was %s", clip(t.Stem()))
		}
		for _, l := range dropped {
			s.at(l.at, added, one.at.Line, "%s", l.text)
		}
	}
}

// ignored is for specifiers that stay as they are.
func ignored(string) {}

// spanPart matches a number and its unit.
var spanPart = regexp.MustCompile(`^([0-9.]+)[ \t]*([^0-9 \t]*)[ \t]*`)

// timeSpan reads a time span: "5min 20s", "1.5h", "90".
func timeSpan(text string) (total time.Duration, ok bool) {
	for rest := strings.TrimSpace(text); rest != ""; {
		m := spanPart.FindStringSubmatch(rest)
		if m == nil {
			return 0, false
		}
		number, err := strconv.ParseFloat(m[1], 64)
		each, known := spanUnits[m[2]]
		value := number * float64(each)
		if err != nil || !known || value > float64(longest-total) {
			return 0, false
		}
		total += time.Duration(value)
		rest = rest[len(m[0]):]
	}
	return total, text != ""
}

var spanUnits = func() map[string]time.Duration {
	const day = 24 * time.Hour
	units := map[string]time.Duration{"": time.Second}
	for words, d := range map[string]time.Duration{
		"usec us µs μs": time.Microsecond, "msec ms": time.Millisecond, "seconds second sec s": time.Second, "minutes minute min m": time.Minute,
		"hours hour hr h": time.Hour, "days day d": day, "weeks week w": 7 * day, "months month M": 2629800 * time.Second, "years year y": 31557600 * time.Second,
	} {
		for _, w := range strings.Fields(words) {
			units[w] = d
		}
	}
	return units
}()
