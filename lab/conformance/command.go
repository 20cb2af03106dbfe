package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cronce-io/cronce/docs/protocol"
)

// Command starts the client under test. Line is a line for the shell. Env is the whole environment of
// the client; nil: that of this process.
type Command struct {
	Line string
	Env  []string
}

// prepare returns the process of the command. It has a process group of its own, so that the processes
// that it starts end with it.
func (c Command) prepare(ctx context.Context) *exec.Cmd {
	cmd := Shell(ctx, c.Line)
	cmd.Env = c.Env
	ownGroup(cmd)
	cmd.WaitDelay = 2 * time.Second
	return cmd
}

// mostAnswer bounds a line of the command.
const mostAnswer = 4 << 20

// question is a line to the command, and answer a line from it.
type question struct {
	Case  string         `json:"case"`
	About string         `json:"about"`
	Name  string         `json:"name,omitempty"`
	Ask   map[string]any `json:"ask"`
}

type answer struct {
	Case    string         `json:"case"`
	Answer  map[string]any `json:"answer"`
	Without []string       `json:"without"` // members that the client does not compute
	Leave   string         `json:"leave"`   // why the client leaves the case to other programs
}

// Ask runs the command, writes all cases to its standard input, and calls answered with the verdict on
// each answer. idle bounds the wait for the next answer. An error concerns the command as a whole, and
// may come after verdicts.
func Ask(ctx context.Context, command Command, cases []Case, idle time.Duration, answered func(Verdict)) error {
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := command.prepare(ctx)
	last := &tail{}
	cmd.Stderr = last
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start --cmd %q: %w", command.Line, err)
	}
	go write(in, cases) // it ends when the command ends or closes its input
	lines := make(chan line)
	go readLines(ctx, out, lines)
	wrong := collect(ctx, lines, cases, idle, answered)
	if wrong != nil && !errors.Is(wrong, errEnded) {
		cancel()
	}
	// The output of the command has ended. The command may take a moment to end.
	defer time.AfterFunc(idle, cancel).Stop()
	err = cmd.Wait()
	switch {
	case outer.Err() != nil:
		return context.Cause(outer)
	case wrong != nil && !errors.Is(wrong, errEnded):
		err = wrong
	case err != nil:
		err = fmt.Errorf("run --cmd %q: %w", command.Line, err)
	case wrong != nil:
		err = fmt.Errorf("run --cmd %q: %w", command.Line, wrong)
	}
	if said := last.String(); err != nil && said != "" {
		err = fmt.Errorf("%w; its standard error ends: %s", err, said)
	}
	return err
}

func write(in io.WriteCloser, cases []Case) {
	defer in.Close()
	w := bufio.NewWriter(in)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, c := range cases {
		if enc.Encode(question{c.ID, c.File, c.Name, c.Ask}) != nil || w.Flush() != nil {
			return // the error of the command's end has the reason
		}
	}
}

// line is a line from the command, or the reason why there is none.
type line struct {
	text []byte
	err  error
}

func readLines(ctx context.Context, out io.Reader, lines chan<- line) {
	defer close(lines)
	s := bufio.NewScanner(out)
	s.Buffer(make([]byte, 64<<10), mostAnswer)
	send := func(l line) bool {
		select {
		case lines <- l:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for s.Scan() {
		if !send(line{text: append([]byte(nil), s.Bytes()...)}) {
			return
		}
	}
	if errors.Is(s.Err(), bufio.ErrTooLong) {
		send(line{err: fmt.Errorf("read answers: a line of more than %d MiB", mostAnswer>>20)})
	}
}

// errEnded means that the command has ended and has not answered all cases.
var errEnded = errors.New("ended")

// collect judges the answers until the output of the command ends.
func collect(ctx context.Context, lines <-chan line, cases []Case, idle time.Duration, answered func(Verdict)) error {
	open := map[string]Case{}
	for _, c := range cases {
		open[c.ID] = c
	}
	done := map[string]bool{}
	patience := time.NewTimer(idle)
	defer patience.Stop()
	for n := 1; ; n++ {
		var l line
		var more bool
		select {
		case l, more = <-lines:
		case <-patience.C:
			if len(open) == 0 {
				return fmt.Errorf("wait for the end of --cmd: it has answered all cases, and still runs after %v: it must end when its standard input ends", idle)
			}
			return fmt.Errorf("read answers: none for %v, and %d of %d cases are not answered, the first of them %s", idle, len(open), len(cases), first(cases, open))
		case <-ctx.Done():
			return nil
		}
		switch {
		case !more && len(open) > 0:
			return fmt.Errorf("it %w with %d of %d cases not answered, the first of them %s", errEnded, len(open), len(cases), first(cases, open))
		case !more:
			return nil
		case l.err != nil:
			return l.err
		}
		patience.Reset(idle)
		verdict, err := judgeLine(l.text, open, done)
		if err != nil {
			return fmt.Errorf("read answer %d: %w", n, err)
		}
		answered(verdict)
	}
}

func judgeLine(text []byte, open map[string]Case, done map[string]bool) (Verdict, error) {
	var a answer
	if err := protocol.Decode(text, &a); err != nil {
		return Verdict{}, fmt.Errorf(`not JSON (%w): %s: want {"case": ..., "answer": {...}} on a line, and nothing else on standard output`, err, cut(text))
	}
	c, asked := open[a.Case]
	switch {
	case done[a.Case]:
		return Verdict{}, fmt.Errorf("case %q is answered twice", a.Case)
	case !asked:
		return Verdict{}, fmt.Errorf("case %q was not asked: %s", a.Case, cut(text))
	case a.Leave == "" && a.Answer == nil:
		return Verdict{}, fmt.Errorf(`no "answer" and no "leave" in %s`, cut(text))
	}
	delete(open, a.Case)
	done[a.Case] = true
	v := Verdict{Case: c, Left: a.Leave, Without: a.Without}
	if a.Leave == "" {
		for _, name := range a.Without {
			if may := protocol.FormOf(c.File).May; !slices.Contains(may, name) {
				return Verdict{}, fmt.Errorf("case %q is answered without %q: only %v of %s may be left out", a.Case, name, may, c.File)
			}
		}
		v.Wrong = c.judge(a.Answer, a.Without)
	}
	return v, nil
}

func first(cases []Case, open map[string]Case) string {
	for _, c := range cases {
		if _, is := open[c.ID]; is {
			return c.String()
		}
	}
	return ""
}

func cut(text []byte) string {
	const most = 120
	if len(text) > most {
		return fmt.Sprintf("%q...", text[:most])
	}
	return fmt.Sprintf("%q", text)
}

// tail keeps the end of what the command writes to its standard error.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const most = 1500
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-most):]
	return len(p), nil
}

// String returns the tail on one line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ReplaceAll(strings.TrimSpace(strings.ToValidUTF8(string(t.text), "")), "\n", " | ")
}

// Process is a running client under test.
type Process struct {
	cmd  *exec.Cmd
	said *tail
	end  context.CancelFunc
	gone chan struct{}
	err  error // of its end; valid when gone is closed
}

// Start starts the command. The process ends with ctx at the latest.
func Start(ctx context.Context, command Command) (*Process, error) {
	ctx, cancel := context.WithCancel(ctx)
	p := &Process{cmd: command.prepare(ctx), said: &tail{}, end: cancel, gone: make(chan struct{})}
	p.cmd.Stderr = p.said
	p.cmd.Stdout = p.said
	if err := p.cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("start --cmd %q: %w", command.Line, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.gone)
	}()
	return p, nil
}

// Ended reports whether the process has ended, and how.
func (p *Process) Ended() (how string, ended bool) {
	select {
	case <-p.gone:
		if p.err == nil {
			return "exit status 0", true
		}
		return p.err.Error(), true
	default:
		return "", false
	}
}

// Kill ends the process and those that it has started, and waits until it has ended.
func (p *Process) Kill() {
	p.end()
	<-p.gone
}

// Said returns the end of what the process wrote to its standard output and error.
func (p *Process) Said() string { return p.said.String() }
