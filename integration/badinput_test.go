//go:build unix

package integration

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

const goodJob = `name: fine, schedule: "* * * * *"`

// refusal is how a program refuses what it is asked to do.
type refusal struct {
	status int
	says   []string
	// lines is more than 1 if the error shows a line of a file.
	lines bool
}

// check waits for the end of p, and checks its error.
func (r refusal) check(t *testing.T, p *process) {
	t.Helper()
	if code := p.exit(); code != r.status {
		t.Errorf("exit status %d, want %d", code, r.status)
	}
	text := strings.TrimSuffix(p.stderr(), "\n")
	if !strings.HasPrefix(text, "cronce: ") || strings.Count(text, "cronce: ") != 1 {
		t.Errorf("stderr does not begin with the program's name, or says it twice:\n%s", text)
	}
	if strings.Contains(text, "\n") && !r.lines {
		t.Errorf("stderr has more than one line:\n%s", text)
	}
	for _, trace := range []string{"goroutine ", "panic", ".go:"} {
		if strings.Contains(text, trace) {
			t.Errorf("stderr looks like a stack trace:\n%s", text)
		}
	}
	for _, part := range r.says {
		if !strings.Contains(text, part) {
			t.Errorf("stderr does not say %q:\n%s", part, text)
		}
	}
	if out := p.stdout(); out != "" {
		t.Errorf("stdout is not empty: %s", out)
	}
}

func TestBadFilesAreUsageErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file string
		says []string
	}{
		"broken":         {"version: 1\njobs:\n  - name: [unclosed\n", []string{"bad.yaml:3", "unclosed"}},
		"unknown field":  {"version: 1\njobs:\n  - name: a\n    schedule: \"* * * * *\"\n    timeuot: 3s\n    action: {exec: [/bin/true]}\n", []string{"bad.yaml:5:5", "timeuot", "timeout"}},
		"bad expression": {"version: 1\njobs:\n  - name: a\n    schedule: \"61 * * * *\"\n    action: {exec: [/bin/true]}\n", []string{"bad.yaml:4:", "61"}},
		"never fires":    {"version: 1\njobs:\n  - name: a\n    schedule: \"0 0 30 2 *\"\n    action: {exec: [/bin/true]}\n", []string{"bad.yaml:4:", "0 0 30 2 *"}},
		"empty":          {"", []string{"bad.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.url = "nats://127.0.0.1:1" // no server is needed for a bad file
			file := s.write("bad.yaml", c.file)
			refusal{status: 2, says: c.says, lines: true}.check(t, s.start("run", "run", "-f", file))
		})
	}
}

func TestUnusableEnvironmentIsAFailure(t *testing.T) {
	t.Parallel()
	t.Run("no file", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		refusal{status: 2, says: []string{"none.yaml", "cronce import --help"}}.check(t, s.start("run", "run", "-f", s.path("none.yaml")))
	})
	t.Run("port in use", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		mute := listenAndSay(t, "127.0.0.1:0", "")
		refusal{status: 1, says: []string{mute, "in use"}}.check(t, s.start("server", "server", "--listen", mute, "--store", s.path("store")))
		web := listenAndSay(t, "127.0.0.1:0", "HTTP/1.1 400 Bad Request\r\n\r\n")
		refusal{status: 1, says: []string{web, "not a NATS server"}}.check(t, s.start("server", "server", "--listen", web, "--store", s.path("store")))
		if _, err := os.Stat(s.path("store")); !os.IsNotExist(err) {
			t.Errorf("a store was created: %v", err)
		}
	})
	t.Run("store is a file", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		store := filepath.Join(s.write("file", ""), "store")
		refusal{status: 1, says: []string{store, "not a directory"}}.check(t, s.start("server", "server", "--listen", "127.0.0.1:0", "--store", store))
	})
	t.Run("no server", func(t *testing.T) {
		t.Parallel()
		s := newSite(t) // a node would wait for it
		refusal{status: 1, says: []string{"127.0.0.1:1"}}.check(t, s.start("ls", "job", "ls", "--server", "nats://127.0.0.1:1"))
	})
	t.Run("server without JetStream", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.url = natstest.Run(t, func(o *server.Options) { o.JetStream = false }).ClientURL()
		refusal{status: 1, says: []string{s.url, "JetStream"}}.check(t, s.worker("w1", s.jobs("", goodJob)))
	})
	t.Run("wrong credentials", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		bare := natstest.Run(t, func(o *server.Options) { o.Username, o.Password = "ada", "right" }).ClientURL()
		s.url = strings.Replace(bare, "nats://", "nats://ada:wrong@", 1)
		p := s.worker("w1", s.jobs("", goodJob))
		refusal{status: 1, says: []string{"credentials"}}.check(t, p)
		if strings.Contains(p.stderr(), "wrong") {
			t.Errorf("stderr shows the password: %s", p.stderr())
		}
	})
}

// listenAndSay accepts connections, says the same to each and closes none.
func listenAndSay(t *testing.T, addr, text string) string {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		var open []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			_, _ = c.Write([]byte(text))
			open = append(open, c)
		}
		for _, c := range open {
			c.Close()
		}
	}()
	return l.Addr().String()
}

// Root may write everywhere, so it runs the program as a user without rights.
func TestReadOnlyStoreIsAFailure(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	store := t.TempDir()
	if err := os.Chmod(store, 0o555); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chmod(filepath.Dir(store), 0o755); err != nil {
			t.Fatal(err)
		}
		const unprivileged = 65534
		s.as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: unprivileged, Gid: unprivileged}}
	}
	p := s.start("server", "server", "--listen", "127.0.0.1:0", "--store", store)
	refusal{status: 1, says: []string{store, "permission denied", "--store"}}.check(t, p)
}

func TestDifferingNamespaceIsRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.url = natstest.Run(t).ClientURL()
	s.connect()
	_, err := s.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "cronce_ledger", History: 5, Storage: jetstream.MemoryStorage})
	if err != nil {
		t.Fatal(err)
	}
	refusal{status: 1, says: []string{"bucket cronce_ledger", "history"}}.check(t, s.worker("w1", s.jobs("", goodJob)))
	if got := s.streams(); len(got) != 1 {
		t.Errorf("half of the namespace was created: %q", got)
	}
}

func TestOtherLeaseThanTheStoredOneIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.url = natstest.Run(t).ClientURL()
	s.connect()
	file := s.jobs("", goodJob)
	s.worker("w1", file, "--lease", "3s").says("node is up")
	refusal{status: 1, says: []string{"3s", "7s", "cronce setup", "--lease"}}.check(t, s.worker("w2", file, "--lease", "7s"))
	s.worker("w3", file).says("node is up")
}

func (s *site) streams() (names []string) {
	s.t.Helper()
	lister := s.js.StreamNames(s.t.Context())
	for name := range lister.Name() {
		names = append(names, name)
	}
	if err := lister.Err(); err != nil {
		s.t.Fatal(err)
	}
	return names
}
