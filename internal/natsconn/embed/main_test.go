package embed

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// The test binary runs itself as a member in a process of its own, which a test can kill.
func TestMain(m *testing.M) {
	if listen := os.Getenv("CRONCE_TEST_LISTEN"); listen != "" {
		os.Exit(runMember(Config{Listen: listen, Store: os.Getenv("CRONCE_TEST_STORE")}))
	}
	goleak.VerifyTestMain(m)
}

// runMember prints "joined" and "embedded" when they become true. It ends when its stdin is closed.
func runMember(cfg Config) int {
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	m, err := JoinOrStart(context.Background(), cfg)
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	if !m.serves() {
		fmt.Println("joined")
	}
	go func() {
		for tick := time.Tick(5 * time.Millisecond); !m.serves(); {
			<-tick
		}
		fmt.Println("embedded")
	}()
	io.Copy(io.Discard, os.Stdin)
	if err := m.Close(); err != nil {
		fmt.Println("error", err)
		return 1
	}
	return 0
}

// serves reports whether this process runs the server now.
func (m *Member) serves() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.server != nil
}

// process is a running member.
type process struct {
	*exec.Cmd
	stdin io.Closer
	says  chan string
	log   *lockedBuffer
}

func startProcess(t *testing.T, listen, store string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(exe), says: make(chan string, 16), log: &lockedBuffer{}}
	p.Env = append(os.Environ(), "CRONCE_TEST_LISTEN="+listen, "CRONCE_TEST_STORE="+store)
	p.Stderr = p.log
	if p.stdin, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.says <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		p.Process.Kill()
		<-drained
		p.Wait()
		if t.Failed() {
			t.Logf("process %d:\n%s", p.Process.Pid, p.log)
		}
	})
	return p
}

// first returns the first line that the process prints.
func (p *process) first(t *testing.T) string {
	t.Helper()
	select {
	case said := <-p.says:
		return said
	case <-time.After(natstest.Patience):
		t.Fatalf("process %d prints nothing", p.Process.Pid)
		return ""
	}
}

func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
}

// stop shuts the process down.
func (p *process) stop() { p.stdin.Close() }

// successor waits until one of the processes serves, and returns it and the others.
func successor(t *testing.T, processes ...*process) (*process, []*process) {
	t.Helper()
	next := -1
	natstest.Eventually(t, "another process to take over", func() bool {
		for i, p := range processes {
			select {
			case said := <-p.says:
				if said != "embedded" {
					t.Fatalf("process %d says %q", p.Process.Pid, said)
				}
				next = i
				return true
			default:
			}
		}
		return false
	})
	return processes[next], slices.Delete(slices.Clone(processes), next, next+1)
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q has more than one line", err)
	}
}
