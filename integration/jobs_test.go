//go:build long && unix

package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// jobFile writes a job file of its own name: a line of YAML for each job.
func (s *site) jobFile(name string, jobs ...string) string {
	s.t.Helper()
	return s.write(name, "version: 1\njobs:\n  - {"+strings.Join(jobs, ", action: {exec: [/bin/true]}}\n  - {")+", action: {exec: [/bin/true]}}\n")
}

// definition is the definition of a job as the registry stores it.
type definition struct {
	Job         struct{ Plan struct{ Schedule string } }
	Owner, Node string
}

func (s *site) definition(name string) (d definition) {
	s.t.Helper()
	e, err := s.bucket("jobs").Get(s.t.Context(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := json.Unmarshal(e.Value(), &d); err != nil {
		s.t.Fatal(err)
	}
	return d
}

// holds checks the schedule and the owner of the job in the registry.
func (s *site) holds(name, schedule, owner string) {
	s.t.Helper()
	if d := s.definition(name); d.Job.Plan.Schedule != schedule || d.Owner != owner {
		s.t.Errorf("job %s is %+v; want %q, owned by %s", name, d, schedule, owner)
	}
}

// command runs cronce until it ends, which must be with this exit status.
// If two files disagree, the nodes report that with the names of both, and the file of the node that started
// last wins.
func TestFilesThatDisagreeAreReportedByBothNodes(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	w1 := s.worker("w1", s.jobFile("one.yaml", `name: report, schedule: "0 7 * * *"`, `name: same, schedule: "@daily"`))
	w1.says("node is up")
	w2 := s.worker("w2", s.jobFile("two.yaml", `name: report, schedule: "0 8 * * *"`, `name: same, schedule: "@daily"`))
	w2.says("job definition replaced: this node's definition counts now")
	w1.says("two nodes define this job differently")
	for _, w := range []*process{w1, w2} {
		for line := range strings.Lines(w.stderr()) {
			if strings.Contains(line, "replaced") || strings.Contains(line, "disagree") {
				if !strings.Contains(line, "w1-") || !strings.Contains(line, "w2-") || !strings.Contains(line, "report") {
					t.Errorf("%s does not name the job and both nodes: %s", w.name, line)
				}
			}
		}
		if strings.Contains(w.stderr(), "same") {
			t.Errorf("%s speaks of the job about which they agree:\n%s", w.name, w.stderr())
		}
	}
	s.holds("report", "0 8 * * *", "file")
	term(w1)
	again := s.worker("w1", s.path("one.yaml"))
	again.says("was replaced by a later edit and is not brought back")
	s.holds("report", "0 8 * * *", "file")
}

// A node that may not write the registry compares its file with it, reports the differences, and works.
func TestNodeThatMayNotWriteTheRegistryComparesReportsAndWorks(t *testing.T) {
	t.Parallel()
	broker := natstest.Run(t, func(o *server.Options) {
		deny := &server.SubjectPermission{Deny: []string{"$KV.cronce_jobs.>"}}
		o.Users = []*server.User{
			{Username: "operator", Password: "p"},
			{Username: "worker", Password: "p", Permissions: &server.Permissions{Publish: deny}},
		}
	})
	as := func(user string) string {
		return strings.Replace(broker.ClientURL(), "nats://", "nats://"+user+":p@", 1)
	}
	s := newSite(t)
	s.nc = broker.Conn(nats.UserInfo("operator", "p"))
	s.js = natstest.JetStream(t, s.nc)
	s.url = as("operator")
	s.command(0, "setup")
	s.command(0, "job", "apply", "-f", s.jobFile("operator.yaml", `name: tick, schedule: "* * * * * *"`, `name: report, schedule: "0 7 * * *"`))
	s.command(0, "job", "release", "report")

	s.url = as("worker")
	w := s.worker("w1", s.jobs(`echo "start $CRONCE_SLOT_ID" >>touched`,
		`name: report, schedule: "0 8 * * *"`, `name: tick, schedule: "* * * * * *"`, `name: absent, schedule: "@daily"`))
	w.says("this node may not write the job registry")
	w.says("the registry's definition of this job differs from this node's")
	w.says("this job is not in the registry, and this node may not write it there")
	eventually(t, "slots to run", func() bool { return count(s.touched(), "start tick:") >= 3 })
	s.url = as("operator")
	s.holds("report", "0 7 * * *", "released")
	if rows := list[struct{ Job string }](s, "job", "ls"); len(rows) != 2 {
		t.Errorf("the registry has %v, want what the operator applied", rows)
	}
	s.url = as("worker")
	refused := s.command(1, "job", "pause", "tick")
	if said := refused.stderr(); !strings.Contains(said, "not permitted") || !strings.Contains(said, "$KV.cronce_jobs.tick") {
		t.Errorf("without the right, the command says %s", said)
	}
	term(w)
}

// An operator's edit survives a rolling restart of nodes with an older file.
func TestOperatorsEditOutlivesARollingRestartOfOlderFiles(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	file := s.jobFile("jobs.yaml", `name: report, schedule: "0 7 * * *"`)
	var workers []*process
	for i := range 3 {
		w := s.worker(fmt.Sprint("w", i), file)
		w.says("node is up")
		workers = append(workers, w)
	}
	edit := s.jobFile("edit.yaml", `name: report, schedule: "0 9 * * *"`)
	s.command(0, "job", "apply", "-f", edit)
	for _, w := range workers {
		w.says("job changed by an operator")
	}
	for i, w := range workers {
		if i == 1 {
			w.kill()
		} else {
			term(w)
		}
		workers[i] = s.worker(fmt.Sprint("w", i), file)
		workers[i].says("an operator's edit takes precedence over this definition")
		workers[i].signal(syscall.SIGHUP) // to read the file again is no release
		workers[i].says("file reloaded")
		s.holds("report", "0 9 * * *", "operator")
	}
	s.command(0, "job", "release", "report")
	s.holds("report", "0 9 * * *", "released")
	term(workers[0])
	s.worker("w0", file).says("job definition replaced: this node's definition counts now")
	s.holds("report", "0 7 * * *", "file")
	s.command(0, "job", "rm", "report")
	workers[1].says("job removed from the registry")
}

// Two operators change a job at once: a command that reports success has made its
// change, and the slower command names the faster operator.
func TestOperatorsThatAreSlowerGetTheNameOfTheFaster(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	s.command(0, "setup")
	s.command(0, "job", "apply", "-f", s.jobFile("first.yaml", `name: report, schedule: "0 0 * * *"`))
	const operators = 8
	var editors [operators]*process
	for i := range editors {
		path := s.jobFile(fmt.Sprintf("edit%d.yaml", i), fmt.Sprintf(`name: report, schedule: "%d 1 * * *"`, i))
		editors[i] = s.start(fmt.Sprint("editor ", i), "job", "apply", "-f", path, "--revision", "1")
	}
	won := -1
	for i, p := range editors {
		switch code := p.exit(); {
		case code == 0 && won < 0:
			won = i
		case code == 0:
			t.Errorf("%d and %d have both changed what they saw at revision 1", won, i)
		case code != 1 || !strings.Contains(p.stderr(), "job report was changed meanwhile by") || !strings.Contains(p.stderr(), "try: cronce job show report"):
			t.Errorf("%d ended with %d: %s", i, code, p.stderr())
		}
	}
	s.holds("report", fmt.Sprintf("%d 1 * * *", won), "operator")
}
