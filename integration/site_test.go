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

	// url is the server that programs get as --server; if it is empty, they find or
	// embed one on the default address.
	url    string
	server *process

	// workerArgs are given to every worker, environment to every program.
	workerArgs, environment []string

	// as sets the user that the programs run as.
	as *syscall.SysProcAttr

	// paused is when finish paused the jobs; zero: it has not.
	paused time.Time

	nc *nats.Conn
	js jetstream.JetStream
}

// newSite is a site without a server.
func newSite(t *testing.T) *site {
	t.Helper()
	return &site{t: t, dir: t.TempDir()}
}

// newServedSite is a site with a "cronce server" on a port of its own.
func newServedSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.startServer("127.0.0.1:0")
	s.connect()
	return s
}

// newForeignSite is a site with a real nats-server, as it comes.
func newForeignSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	s.startForeign(addr)
	s.connect()
	return s
}

// onEachServer runs a test on the server that is built in and on the real one.
func onEachServer(t *testing.T, test func(t *testing.T, s *site)) {
	t.Helper()
	for name, open := range map[string]func(*testing.T) *site{"cronce server": newServedSite, "nats-server": newForeignSite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func (s *site) startServer(listen string) {
	s.t.Helper()
	s.server = s.start("server", "server", "--listen", listen, "--store", s.path("store"), "-o", "json")
	var said struct{ URL string }
	eventually(s.t, "the server's address", func() bool {
		if !s.server.running() {
			s.t.Fatal("the server has ended")
		}
		return json.Unmarshal([]byte(s.server.stdout()), &said) == nil
	})
	s.url = said.URL
}

func (s *site) startForeign(addr string) {
	s.t.Helper()
	host, port, _ := net.SplitHostPort(addr)
	s.server = start(s.t, "nats-server", s.env(), nil, program(s.t, natsServer), "-js", "-sd", s.path("store"), "-a", host, "-p", port)
	s.server.says("Server is ready")
	s.url = "nats://" + addr
}

// restartServer ends the server, on its own terms or at once, and starts it again
// on the same files and port.
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
	// What the test sends next must not go down the old connection, of whose end its
	// client may not have heard yet.
	eventually(s.t, "the test's client to be back", func() bool {
		return s.nc.FlushTimeout(time.Second) == nil
	})
}

// stopServer ends a server on its own terms; nats-server says 1 after TERM.
func stopServer(p *process) {
	p.t.Helper()
	if p.name == "server" {
		term(p)
		return
	}
	p.signal(syscall.SIGTERM)
	p.exit()
}

// connect gives the test a client of its own.
func (s *site) connect() {
	s.t.Helper()
	s.nc = natstest.Connect(s.t, s.url)
	s.js = natstest.JetStream(s.t, s.nc)
}

// env is all that a program of the site finds in its environment.
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

// worker starts a "cronce run" whose node's name begins with name.
func (s *site) worker(name, file string, args ...string) *process {
	s.t.Helper()
	return s.start(name, slices.Concat([]string{"run", "-f", file, "--node", name}, s.workerArgs, args)...)
}

// jobs writes a job file: a line of YAML for each job, around an action that runs
// the script with the site's folder as working directory.
func (s *site) jobs(script string, jobs ...string) string {
	s.t.Helper()
	action := s.write("action.sh", "cd "+s.dir+" || exit 1\n"+script)
	file := "version: 1\njobs:\n"
	for _, j := range jobs {
		file += fmt.Sprintf("  - {%s, action: {exec: [/bin/sh, %q]}}\n", j, action)
	}
	return s.write("jobs.yaml", file)
}

// touched are the lines that actions have appended to the file "touched".
func (s *site) touched() []string { return s.lines("touched") }

// lines are the whole lines of a file that actions write; none when there is none.
func (s *site) lines(name string) []string {
	s.t.Helper()
	data, err := os.ReadFile(s.path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	return strings.Split(string(data), "\n")[:strings.Count(string(data), "\n")]
}

// count is how many of the lines begin with prefix.
func count(lines []string, prefix string) (n int) {
	for _, line := range lines {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// slotRow and nodeRow are what scripts get from "slot ls" and "node ls".
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
	p := s.start(strings.Join(args, " "), append(args, "-o", "json")...)
	if code := p.exit(); code != 0 {
		s.t.Fatalf("cronce %s: exit status %d: %s", p.name, code, p.stderr())
	}
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

// node is the row of the newest node whose name begins with the worker's.
func (s *site) node(worker string) (newest nodeRow) {
	s.t.Helper()
	for _, n := range s.nodes() {
		if strings.HasPrefix(n.Node, worker+"-") {
			newest = n
		}
	}
	return newest
}

// bucket is a bucket of the namespace, for looking behind the scenes.
func (s *site) bucket(what string) jetstream.KeyValue {
	s.t.Helper()
	b, err := s.js.KeyValue(s.t.Context(), "cronce_"+what)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// record is a slot's record in the ledger as it is stored now.
type record struct {
	ID, State, Node string
	Attempt         int
	revision        uint64
}

// record reads the ledger; the zero record stands for none, or for a broker that
// does not answer.
func (s *site) record(slotID string) (r record) {
	s.t.Helper()
	key := ledgerKey(slotID)
	raw, err := s.js.Conn().Request("$JS.API.STREAM.MSG.GET.KV_cronce_ledger", []byte(`{"last_by_subj":"$KV.cronce_ledger.`+key+`"}`), time.Second)
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

// slotID is the name of the job's slot at an instant.
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

// drained waits until no message waits or runs: nothing can be delivered again.
func (s *site) drained() {
	s.t.Helper()
	eventually(s.t, "the stream of slots to be empty", func() bool {
		stream, err := s.js.Stream(s.t.Context(), "cronce_slots")
		return err == nil && stream.CachedInfo().State.Msgs == 0
	})
}

// soon is an instant before which a job gets into the registry even on a busy machine. It
// is chosen when the program is built, which takes longer.
func soon() time.Time {
	_, _ = cronce()
	return time.Now().Add(15 * time.Second).Truncate(time.Second)
}

// at is the schedule of a job that fires once.
func at(instant time.Time) string {
	return fmt.Sprintf("schedule: %q", "@at "+instant.UTC().Format(time.RFC3339))
}

// lookPath is for need: why a program cannot be run.
func lookPath(name string) (path, why string) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err.Error()
	}
	return path, ""
}
