//go:build unix

package integration

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// site is a machine of its own, as far as the programs on it can tell: a home, a
// NATS server, and workers.
type site struct {
	t   *testing.T
	dir string

	// url is the server that programs get as --server. If it is empty, they join or embed one at the default
	// address.
	url    string
	server *process

	// Every worker gets workerArgs, and every program environment.
	workerArgs, environment []string

	// as sets the user that the programs run as.
	as *syscall.SysProcAttr

	// paused is the time at which finish paused the jobs, or zero.
	paused time.Time

	nc *nats.Conn
	js jetstream.JetStream
}

// newSite returns a site without a server.
func newSite(t *testing.T) *site {
	t.Helper()
	return &site{t: t, dir: t.TempDir()}
}

// newServedSite returns a site with a "cronce server" on a port of its own.
func newServedSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.startServer("127.0.0.1:0")
	s.connect()
	return s
}

// newForeignSite returns a site with a nats-server with the defaults.
func newForeignSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.startForeign(natstest.FreeAddress(t))
	s.connect()
	return s
}

// onEachServer runs a test on a "cronce server" and on a nats-server.
func onEachServer(t *testing.T, test func(t *testing.T, s *site)) {
	t.Helper()
	for name, open := range map[string]func(*testing.T) *site{"cronce server": newServedSite, "nats-server": newForeignSite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// startServer starts a "cronce server" with the files of the site.
func (s *site) startServer(listen string, args ...string) {
	s.t.Helper()
	s.server = s.start("server", append([]string{"server", "--listen", listen, "--store", s.path("store"), "-o", "json"}, args...)...)
	var said struct{ URL string }
	eventually(s.t, "the server's address", func() bool {
		if !s.server.running() {
			s.t.Fatal("the server has ended")
		}
		return json.Unmarshal([]byte(s.server.stdout()), &said) == nil
	})
	s.url = said.URL
}

// startForeign starts a nats-server with the files of the site.
func (s *site) startForeign(addr string) {
	s.t.Helper()
	host, port, _ := net.SplitHostPort(addr)
	s.server = start(s.t, "nats-server", s.env(), nil, program(s.t, natsServer), "-js", "-sd", s.path("store"), "-a", host, "-p", port)
	s.server.says("Server is ready")
	s.url = "nats://" + addr
}

// restartServer calls end, which must end the server, and starts the server again on the same files and port.
func (s *site) restartServer(end func(*process)) {
	s.t.Helper()
	end(s.server)
	u, err := url.Parse(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.server.name == "nats-server" {
		s.startForeign(u.Host)
	} else {
		s.startServer(u.Host)
	}
	// The test's client may not know yet that its old connection is closed. What the test sends next would be
	// lost on it.
	eventually(s.t, "the test's client to reconnect", func() bool {
		return s.nc.FlushTimeout(time.Second) == nil
	})
}

// stopServer ends a server with TERM. The exit status of a nats-server is then 1.
func stopServer(p *process) {
	p.t.Helper()
	if p.name == "server" {
		term(p)
		return
	}
	p.signal(syscall.SIGTERM)
	p.exit()
}

// connect opens the test's own connection to the server.
func (s *site) connect() {
	s.t.Helper()
	s.nc = natstest.Connect(s.t, s.url)
	s.js = natstest.JetStream(s.t, s.nc)
}

// env returns the whole environment of a program of the site.
func (s *site) env() []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "TMPDIR=" + os.TempDir(),
		"XDG_DATA_HOME=" + s.path("data"), "XDG_CONFIG_HOME=" + s.path("config"),
	}, s.environment...)
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

func (s *site) write(name, text string) string {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	return s.path(name)
}

// start runs cronce with args beside the test.
func (s *site) start(name string, args ...string) *process {
	s.t.Helper()
	if s.url != "" && args[0] != "server" {
		args = append(args, "--server", s.url)
	}
	return start(s.t, name, s.env(), s.as, program(s.t, cronce), args...)
}

// command runs cronce to its end, and checks its exit status.
func (s *site) command(code int, args ...string) *process {
	s.t.Helper()
	p := s.start(strings.Join(args, " "), args...)
	if got := p.exit(); got != code {
		s.t.Fatalf("cronce %s: exit status %d, want %d: %s", p.name, got, code, p.stderr())
	}
	return p
}

// worker starts a "cronce run" whose node's name begins with name.
func (s *site) worker(name, file string, args ...string) *process {
	s.t.Helper()
	return s.start(name, slices.Concat([]string{"run", "-f", file, "--node", name}, s.workerArgs, args)...)
}

// jobs writes a job file with a line of YAML for each job. The action of each runs the script, with the site's
// folder as working directory.
func (s *site) jobs(script string, jobs ...string) string {
	s.t.Helper()
	action := s.write("action.sh", "cd "+s.dir+" || exit 1\n"+script)
	file := "version: 1\njobs:\n"
	for _, j := range jobs {
		file += fmt.Sprintf("  - {%s, action: {exec: [/bin/sh, %q]}}\n", j, action)
	}
	return s.write("jobs.yaml", file)
}

// touched returns the lines that actions have appended to the file "touched".
func (s *site) touched() []string { return s.lines("touched") }

// lines returns the whole lines of a file that actions write. The file need not exist.
func (s *site) lines(name string) []string {
	s.t.Helper()
	data, err := os.ReadFile(s.path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	return strings.Split(string(data), "\n")[:strings.Count(string(data), "\n")]
}

// count returns how many of the lines begin with prefix.
func count(lines []string, prefix string) (n int) {
	for _, line := range lines {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// slotRow and nodeRow are rows of "slot ls -o json" and "node ls -o json".
type slotRow struct {
	ID, Job, State, Node, Error, Output string
	Slot, Due, Published, Started       time.Time
	Attempt                             int
	Fence                               uint64
}

type nodeRow struct {
	Node, State, Tzdata string
	Running, Priority   int
	ClockOffset         float64   `json:"clock_offset_ms"`
	FencedBy            string    `json:"fenced_by"`
	FencedAt            time.Time `json:"fenced_at"`
}

func (s *site) slots(args ...string) []slotRow {
	s.t.Helper()
	return list[slotRow](s, append([]string{"slot", "ls"}, args...)...)
}

func (s *site) nodes() []nodeRow {
	s.t.Helper()
	return list[nodeRow](s, "node", "ls")
}

// list runs a command to its end and reads the JSON Lines that it prints.
func list[T any](s *site, args ...string) (rows []T) {
	s.t.Helper()
	p := s.command(0, append(args, "-o", "json")...)
	for lines := bufio.NewScanner(strings.NewReader(p.stdout())); lines.Scan(); {
		var row T
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			s.t.Fatalf("cronce %s: %v in %s", p.name, err, lines.Text())
		}
		rows = append(rows, row)
	}
	return rows
}

func readJSON[T any](t *testing.T, data []byte) (value T) {
	t.Helper()
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatalf("%v in %q", err, data)
	}
	return value
}

// node returns the row of the newest node whose name begins with the worker's.
func (s *site) node(worker string) (newest nodeRow) {
	s.t.Helper()
	for _, n := range s.nodes() {
		if strings.HasPrefix(n.Node, worker+"-") {
			newest = n
		}
	}
	return newest
}

// bucket opens a bucket of the namespace, to read or change what no command shows or changes.
func (s *site) bucket(what string) jetstream.KeyValue {
	s.t.Helper()
	b, err := s.js.KeyValue(s.t.Context(), "cronce_"+what)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// record is what a test compares of a slot's record in the ledger.
type record struct {
	ID, State, Node string
	Attempt         int
	revision        uint64
}

// record reads a slot's record at the leader of the ledger. It is the zero value if there is none, or if the
// broker does not answer.
func (s *site) record(slotID string) (r record) {
	s.t.Helper()
	key := ledgerKey(slotID)
	raw, err := s.js.Conn().Request("$JS.API.STREAM.MSG.GET.KV_cronce_ledger", []byte(`{"last_by_subj":"$KV.cronce_ledger.`+key+`"}`), 5*time.Second)
	if err != nil {
		return record{}
	}
	var answer struct {
		Message struct {
			Seq  uint64
			Data []byte
		}
	}
	if err := json.Unmarshal(raw.Data, &answer); err != nil {
		s.t.Fatal(err)
	}
	if answer.Message.Seq == 0 {
		return record{}
	}
	if err := json.Unmarshal(answer.Message.Data, &r); err != nil {
		s.t.Fatal(err)
	}
	r.revision = answer.Message.Seq
	return r
}

// ledgerKey is "report.20261121T070000Z" for "report:2026-11-21T07:00:00Z".
func ledgerKey(slotID string) string {
	job, instant, _ := strings.Cut(slotID, ":")
	return job + "." + strings.NewReplacer("-", "", ":", "").Replace(instant)
}

// slotID returns the ID of the job's slot at an instant.
func slotID(job string, at time.Time) string { return job + ":" + at.UTC().Format(time.RFC3339) }

// ends waits until the slot has its outcome.
func (s *site) ends(id, outcome string) record {
	s.t.Helper()
	var r record
	eventually(s.t, id+" to be "+outcome, func() bool {
		r = s.record(id)
		return r.State == outcome
	})
	return r
}

// drained waits until the stream of slots is empty, so that no message can be delivered again.
func (s *site) drained() {
	s.t.Helper()
	eventually(s.t, "the stream of slots to be empty", func() bool {
		stream, err := s.js.Stream(s.t.Context(), "cronce_slots")
		return err == nil && stream.CachedInfo().State.Msgs == 0
	})
}

// soon returns an instant that is far enough away for a job to get into the registry before it, even on a busy
// machine. soon first builds cronce, which may take longer than that.
func soon() time.Time {
	_, _ = cronce()
	return time.Now().Add(15 * time.Second).Truncate(time.Second)
}

// at returns the schedule of a job that fires once.
func at(instant time.Time) string {
	return fmt.Sprintf("schedule: %q", "@at "+instant.UTC().Format(time.RFC3339))
}

// lookPath returns the path of a program, or why it cannot be run, for need.
func lookPath(name string) (path, why string) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err.Error()
	}
	return path, ""
}
