package deploy_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// loopback stands for a network of containers. Each host has its own address in 127.0.0.0/8, all of which is loopback
// on Linux. So ports stay as they are. Names of hosts and paths of containers are replaced in arguments, environment and
// files.
type loopback struct {
	t     *testing.T
	dir   string
	names []string
	first int // the number of the first host among those of this process
}

var hosts atomic.Int64

func newLoopback(t *testing.T, names ...string) *loopback {
	n := len(names)
	return &loopback{t, t.TempDir(), names, int(hosts.Add(int64(n))) - n}
}

// address returns the address of a host. It depends on the ID of this process, so that two runs of the tests do not meet.
func (l *loopback) address(host string) string {
	i := slices.Index(l.names, host)
	if i < 0 {
		l.t.Fatalf("there is no host %s", host)
	}
	return fmt.Sprintf("127.%d.%d.%d", 16+os.Getpid()>>8%200, os.Getpid()%256, 1+l.first+i)
}

// box is a container.
type box struct {
	*loopback
	host  string
	paths map[string]string // where the paths of the container are on this machine
	env   []string
}

func (l *loopback) box(host string) *box {
	return &box{loopback: l, host: host, paths: map[string]string{}}
}

// mount copies a file of this machine, or makes an empty folder if source is empty, for the path target of the container.
// The text of the file is mapped, so all folders must be mounted before it.
func (b *box) mount(target, source string) {
	b.t.Helper()
	here := filepath.Join(b.dir, b.host, target)
	b.paths[target] = here
	err := os.MkdirAll(filepath.Dir(here), 0o755)
	if err == nil && source == "" {
		err = os.MkdirAll(here, 0o755)
	}
	if err == nil && source != "" {
		err = os.WriteFile(here, []byte(b.mapped(string(filetest.Read(b.t, source)))), 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// anywhere matches addresses without a host, or with 0.0.0.0.
var anywhere = regexp.MustCompile(`(^|["=\s])(0\.0\.0\.0)?(:\d{4}\b)`)

// mapped replaces names, addresses and paths of containers.
func (b *box) mapped(text string) string {
	text = anywhere.ReplaceAllString(text, "${1}"+b.address(b.host)+"${3}")
	text = strings.NewReplacer("127.0.0.1:", b.address(b.host)+":", "localhost:", b.address(b.host)+":").Replace(text)
	for _, name := range b.names {
		text = regexp.MustCompile(`\b`+regexp.QuoteMeta(name)+`(:\d)`).ReplaceAllString(text, b.address(name)+"$1")
	}
	// The longest path comes first. All are replaced in one pass, so that no replacement is replaced again.
	targets := slices.SortedFunc(maps.Keys(b.paths), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	for i, target := range targets {
		targets[i] = regexp.QuoteMeta(target)
	}
	path := regexp.MustCompile(`(^|["=\s\[])(` + strings.Join(targets, "|") + `)(/|["\s,\]]|$)`)
	text = path.ReplaceAllStringFunc(text, func(match string) string {
		m := path.FindStringSubmatch(match)
		return m[1] + b.paths[m[2]] + m[3]
	})
	return text
}

// program is a command of a container that runs here.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
}

// start runs a program of this machine with the arguments of the container.
func (b *box) start(path string, args ...string) *program {
	b.t.Helper()
	for i := range args {
		args[i] = b.mapped(args[i])
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append([]string{"HOME=" + b.dir, "PATH=" + os.Getenv("PATH")}, b.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.CreateTemp(b.dir, "log-"+b.host)
	if err != nil {
		b.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	p := &program{b.t, cmd, log.Name(), make(chan struct{})}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	go func() { _ = cmd.Wait(); close(p.ended) }()
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.ended
		if b.t.Failed() {
			text, _ := os.ReadFile(p.log)
			b.t.Logf("%s (%s) said:\n%s", b.host, strings.Join(cmd.Args[1:], " "), text[max(0, len(text)-4000):])
		}
	})
	return p
}

// exit waits for the end, and returns the status.
func (p *program) exit() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(natstest.Patience):
		p.t.Fatalf("%v does not end", p.cmd.Args)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *program) term() int {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	return p.exit()
}

// get returns the answer to a request. The status is 0 if there is none.
func get(t *testing.T, url string, header ...string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		return 0, err.Error()
	}
	return w.StatusCode, string(text)
}

// answers waits until a URL answers with 200 and a JSON value of which ok is true.
func answers[T any](t *testing.T, url string, ok func(T) bool) {
	t.Helper()
	var last string
	defer func() {
		if t.Failed() {
			t.Logf("%s answered %s", url, last)
		}
	}()
	natstest.Eventually(t, url, func() bool {
		status, body := get(t, url)
		last = fmt.Sprint(status, " ", body)
		var value T
		return status == 200 && json.Unmarshal([]byte(body), &value) == nil && ok(value)
	})
}

// needCommand skips the test if a program is missing. With CRONCE_TEST_NO_SKIP=1 it fails the test, unless
// CRONCE_TEST_WITHOUT names the program.
func needCommand(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
	case os.Getenv("CRONCE_TEST_NO_SKIP") == "1" && !slices.Contains(strings.Fields(os.Getenv("CRONCE_TEST_WITHOUT")), name):
		t.Fatal(err)
	default:
		t.Skipf("needs %s: %v", name, err)
	}
	return path
}

// programs builds cronce and nats-server from the main module, once.
var programs = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "cronce-deploy"); err != nil {
		return "", err
	}
	atEnd = append(atEnd, func() { os.RemoveAll(dir) })
	for name, pkg := range map[string]string{"cronce": "./cmd/cronce", "nats-server": "github.com/nats-io/nats-server/v2"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), pkg)
		cmd.Dir = "../.."
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
	}
	return dir, nil
})

func built(t *testing.T, name string) string {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}
