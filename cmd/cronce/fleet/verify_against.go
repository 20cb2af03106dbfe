package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/check/against"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/jobfile/migrate"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

const againstHelp = `With --against LOG, verify compares the slots that ran, or that would have run because they
are shadows (shadow: true), with the runs that another scheduler logged (- is standard
input), and does nothing else. A line of the log is one run:

  2026-11-21T07:00:01Z report                                          a time and a job;
                                                                       without a zone in --tz
  Nov 21 07:00:01 web1 CRON[711]: (root) CMD (cd / && make report)     cron's syslog
  2026-11-21T07:00:01+0100 web1 systemd[1]: Starting report.service - Report...
                                                                       journalctl -o short-iso

Other lines of syslog and of the journal only show which time the log covers. A command of
cron belongs to the job in -f FILE with the same command and user, or else to the job that
has the name that "cronce import crontab" gives the command. A name that import changed, such
as "tidy up", belongs to the job in -f FILE that it became. A service of systemd belongs to
the job of its name, and to the jobs in -f FILE with the same command; without such a job it
is ignored. A run belongs to the nearest slot of its job, within --tolerance. It is a
difference if only one side has it, and then the status is 3. A job without a line in the
log is compared if --job or -f names it, or if it has a shadow in that time.

Without --from and --to, the time that the log covers is compared; slots that were due in the
last --tolerance of that time may have no line. Runs from before a job was in the registry, or
from so long ago that the ledger may have removed the slot, are not judged. Runs without a
planned time, such as triggered ones, are left out.

With -o json, one line for each difference, one for each job, and the summary, the only line
with ok. offset_ms is from the slot's due time to the log's time; twice counts the runs that
both sides have although the slot was no shadow, so that the work was done twice; unknown
jobs are not in the registry; also lists the jobs that the log does not tell apart from this
one, because it names only the command or the service that they share:

  {"difference":"only_theirs","job":"report","id":"report:2026-11-21T07:00:00Z","state":"skipped",
   "time":"2026-11-21T07:00:01Z","line":17,"text":"the slot did not run"}
  {"difference":"only_ours","job":"report","id":"report:2026-11-21T08:00:00Z","state":"succeeded","shadow":true,
   "time":"2026-11-21T08:00:00Z"}
  {"job":"report","both":22,"only_ours":1,"only_theirs":1,"offset_ms":{"min":812,"p50":1003,"max":1490}}
  {"ok":false,"from":"2026-11-20T12:00:00Z","to":"2026-11-21T12:00:00Z","jobs":1,"both":22,"only_ours":1,"only_theirs":1}`

// againstFlags are the flags of a comparison with a log.
type againstFlags struct {
	log, file, zone string
	tolerance       base.Duration
	location        *time.Location
}

func (f *againstFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.log, "against", "", "compare with the runs in this `log` of another scheduler")
	flags.StringVarP(&f.file, "file", "f", "", "with --against: the job `file` whose commands the log has")
	flags.StringVar(&f.zone, "tz", "", "with --against: time `zone` of lines without one (default: this machine's if known, else UTC)")
	flags.Var(&f.tolerance, "tolerance", "with --against: how far a run may be from its slot")
}

func (f *againstFlags) check(cmd *cobra.Command, all verifyFlags) (err error) {
	if f.log == "" {
		for _, name := range []string{"file", "tz", "tolerance"} {
			if cmd.Flags().Changed(name) {
				return fmt.Errorf("--%s needs --against", name)
			}
		}
		return nil
	}
	switch {
	case all.repair:
		return errors.New("--repair and --against at once: want one of them")
	case f.log == "-" && f.file == "-":
		return errors.New("--against - and -f - at once: only one of them can be standard input")
	}
	f.location = time.Local
	if f.zone != "" {
		if f.location, err = time.LoadLocation(f.zone); err != nil {
			return fmt.Errorf("invalid --tz %q: want an IANA name like Europe/Berlin", f.zone)
		}
	}
	return nil
}

// comparison is one run of verify --against. Its maps are by job.
type comparison struct {
	base.Session
	flags verifyFlags
	log   against.Log
	file  []spec.Entry

	window  against.Window // in which runs of the log must have a slot
	ours    against.Window // in which slots must have a run of the log
	entries map[string]plans.Entry
	slots   map[string][]against.Slot
	shadows map[string]bool // the jobs with a shadow
}

func verifyAgainst(ctx context.Context, a *base.App, f verifyFlags) error {
	c := comparison{flags: f, entries: map[string]plans.Entry{}, slots: map[string][]against.Slot{}, shadows: map[string]bool{}}
	if f.against.file != "" {
		file, err := a.ReadJobFile(ctx, f.against.file)
		if err != nil {
			return err
		}
		c.file = file.Jobs
	}
	var err error
	c.log, err = base.ReadUntil(ctx, func() (against.Log, error) { return readLog(a, f.against, c.importedJob) })
	if err != nil {
		return base.Usage(err)
	}
	if c.log.Unknown > 0 {
		a.Log.Warn("lines of the log were not understood", "count", c.log.Unknown, "first", c.log.FirstUnknown, "log", f.against.log)
	}
	return a.Open(ctx, "verify", func(ctx context.Context, r base.Session) error {
		c.Session = r
		return c.run(ctx)
	})
}

// importedJob returns the job of the file that import made of a job with this name, or "".
func (c *comparison) importedJob(text string) string {
	for _, name := range []string{text, migrate.UnitName(text)} {
		if slices.ContainsFunc(c.file, func(e spec.Entry) bool { return e.Job.Name == name }) {
			return name
		}
	}
	return ""
}

func readLog(a *base.App, f againstFlags, named func(text string) string) (against.Log, error) {
	var in io.Reader = a.Stdin
	if f.log != "-" {
		file, err := os.Open(f.log)
		if err != nil {
			return against.Log{}, err
		}
		defer file.Close()
		in = file
	}
	log, err := against.Read(in, a.Now(), f.location, named)
	if err != nil {
		return log, fmt.Errorf("read %s: %w", f.log, err)
	}
	if log.First.IsZero() {
		return log, fmt.Errorf("%s: no line is a run: want lines like %q, or those of syslog or of journalctl -o short-iso", f.log, "2026-11-21T07:00:01Z report")
	}
	return log, nil
}

func (c *comparison) run(ctx context.Context) error {
	entries, err := c.Jobs().List(ctx)
	if err != nil && !c.SkipUnreadable(err) {
		return err
	}
	for _, e := range entries {
		c.entries[e.Job.Name] = e
	}
	for _, name := range c.flags.jobs {
		if _, known := c.entries[name]; !known {
			return c.NoSuchJob(ctx, name)
		}
	}
	if err := c.setWindows(); err != nil {
		return base.Usage(err)
	}
	tolerance := time.Duration(c.flags.against.tolerance)
	for s, err := range c.Client().Slots(ctx, client.SlotFilter{Since: c.window.From.Add(-job.MaxSpread - tolerance)}) {
		if err != nil && !c.SkipUnreadable(err) {
			return err
		}
		if err == nil {
			c.addSlot(s, tolerance)
		}
	}
	return c.print(c.compare(tolerance))
}

func (c *comparison) setWindows() error {
	c.window = against.Window{From: c.flags.from.Time, To: c.flags.to.Time}
	if c.window.From.IsZero() {
		c.window.From = c.log.First
	}
	c.ours = c.window
	if c.window.To.IsZero() {
		c.window.To = c.log.Last.Truncate(time.Second).Add(time.Second)
		c.ours.To = c.log.Last.Add(-time.Duration(c.flags.against.tolerance))
	}
	if !c.window.To.After(c.window.From) {
		return fmt.Errorf("the log covers %s to %s: nothing of that is from %s on and before %s", c.log.First.Format(time.RFC3339),
			c.log.Last.Format(time.RFC3339), c.window.From.UTC().Format(time.RFC3339), c.window.To.UTC().Format(time.RFC3339))
	}
	return nil
}

// addSlot adds a slot, unless it is outside the time to compare or has no planned instant.
func (c *comparison) addSlot(s client.SlotRow, tolerance time.Duration) {
	due := s.Due
	if due.IsZero() {
		due = s.Slot
	}
	if s.Slot.IsZero() || due.Before(c.window.From.Add(-tolerance)) || due.After(c.window.To.Add(tolerance)) || strings.Contains(s.ID, "#") {
		return // # marks a shard: only the whole slot is compared
	}
	c.slots[s.Job] = append(c.slots[s.Job], against.Slot{Job: s.Job, ID: s.ID, Due: due, State: s.State, Ran: s.Attempt > 0 || !s.Started.IsZero(), Shadow: s.Shadow})
	c.shadows[s.Job] = c.shadows[s.Job] || s.Shadow
}

// compared is the result for one job.
type compared struct {
	against.Sum
	Unknown bool `json:"unknown,omitempty"` // it is not in the registry
	found   []against.Difference
}

// compare compares job by job, in the order of their names.
func (c *comparison) compare(tolerance time.Duration) (all []compared) {
	groups := c.groups()
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		j := groups[key]
		j.Window, j.Ours = c.windowOf(j.Names)
		for _, name := range j.Names {
			j.Slots = append(j.Slots, c.slots[name]...)
		}
		one := compared{}
		one.Sum = against.Compare(*j, tolerance, func(d against.Difference) { one.found = append(one.found, d) })
		_, known := c.entries[j.Names[0]]
		one.Unknown = !known
		all = append(all, one)
	}
	return all
}

// windowOf returns the windows in which the jobs can be judged: not before the first of them was
// in the registry, and not before the ledger's retention, since it may have removed older slots.
func (c *comparison) windowOf(names []string) (window, ours against.Window) {
	from := c.Now().Add(-c.Settings().Retention).Add(time.Hour)
	var since time.Time
	for _, name := range names {
		if e, known := c.entries[name]; known {
			if first := e.Plans()[0].From; since.IsZero() || first.Before(since) {
				since = first
			}
		}
	}
	window, ours = c.window, c.ours
	window.From = plans.Later(window.From, plans.Later(since, from))
	ours.From = plans.Later(ours.From, window.From)
	return window, ours
}

// groups returns the groups of jobs to compare, with their runs, by the name of each group's first
// job. Jobs that the log does not tell apart are one group.
func (c *comparison) groups() map[string]*against.Job {
	names := newNaming(c.file, c.entries, c.log.Runs)
	groups := map[string]*against.Job{}
	group := func(jobs []string) *against.Job {
		g := groups[jobs[0]]
		if g == nil {
			g = &against.Job{Names: jobs}
			groups[jobs[0]] = g
		}
		return g
	}
	isWanted := func(name string) bool { return len(c.flags.jobs) == 0 || slices.Contains(c.flags.jobs, name) }
	for _, r := range c.log.Runs {
		if jobs := names.jobsOf(r); len(jobs) > 0 && slices.ContainsFunc(jobs, isWanted) {
			g := group(jobs)
			g.Runs = append(g.Runs, r)
		}
	}
	for _, e := range c.file {
		if isWanted(e.Job.Name) {
			group(names.groupOf(e.Job.Name))
		}
	}
	for name, isShadow := range c.shadows {
		if isShadow && isWanted(name) {
			group(names.groupOf(name))
		}
	}
	for _, name := range c.flags.jobs {
		group(names.groupOf(name))
	}
	return groups
}

// naming finds the jobs of a run in the log.
type naming struct {
	file     []spec.Entry
	entries  map[string]plans.Entry
	commands map[string][]string // jobs of the file by user and command
	alike    map[string][]string // by job: the jobs that the log does not tell apart, this one included
}

func newNaming(file []spec.Entry, entries map[string]plans.Entry, runs []against.Run) naming {
	n := naming{file, entries, map[string][]string{}, map[string][]string{}}
	for _, e := range file {
		if exec := e.Action.Exec; exec != nil {
			if command := migrate.LoggedCommand(exec.Args); command != "" {
				key := exec.User + "\n" + command
				n.commands[key] = append(n.commands[key], e.Job.Name)
			}
		}
	}
	for _, r := range runs {
		jobs := n.jobsOf(r)
		for _, name := range jobs {
			if len(jobs) > 1 {
				n.alike[name] = jobs
			}
		}
	}
	return n
}

// jobsOf returns the jobs that a run may belong to. There are several if the log names only a command
// or a service that they share, and none if the run belongs to no job.
func (n naming) jobsOf(r against.Run) []string {
	switch {
	case r.Job != "":
		return n.groupOf(r.Job)
	case r.Command != "":
		// A user's own crontab names no user.
		for _, user := range []string{r.User, ""} {
			if jobs, ok := n.commands[user+"\n"+r.Command]; ok {
				return jobs
			}
		}
		return n.groupOf(migrate.CommandName(r.Command))
	}
	name := migrate.UnitName(r.Unit)
	if jobs := n.jobsOfUnit(name); jobs != nil {
		return jobs
	}
	if _, known := n.entries[name]; known {
		return n.groupOf(name)
	}
	return nil // systemd also starts services that belong to no timer
}

// jobsOfUnit returns the job of the file that a service became, and the jobs of the file with the same
// command: import makes several jobs of a timer with several times.
func (n naming) jobsOfUnit(name string) (jobs []string) {
	i := slices.IndexFunc(n.file, func(e spec.Entry) bool { return e.Job.Name == name })
	if i < 0 {
		return nil
	}
	for _, e := range n.file {
		x, y := e.Action.Exec, n.file[i].Action.Exec
		if e.Job.Name == name || x != nil && y != nil && x.User == y.User && slices.Equal(x.Args, y.Args) {
			jobs = append(jobs, e.Job.Name)
		}
	}
	return jobs
}

// groupOf returns the job and those that the log does not tell apart from it.
func (n naming) groupOf(name string) []string {
	if jobs, ok := n.alike[name]; ok {
		return jobs
	}
	return []string{name}
}
