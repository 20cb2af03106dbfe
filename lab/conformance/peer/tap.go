package peer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/lab/proxy"
)

// frame is one protocol message between the client and the server.
type frame struct {
	at       time.Time
	toServer bool
	op       string // PUB, HPUB, MSG, HMSG, or another word
	subject  string
	reply    string
	head     []byte // the headers of HPUB and HMSG
	data     []byte
	raw      []byte // all of it
}

func (f frame) header(name string) string {
	for line := range strings.Lines(string(f.head)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.EqualFold(key, name) {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// expected returns the revision of the key at which the client wants its write to be stored, or "".
func (f frame) expected() string { return f.header("Nats-Expected-Last-Subject-Sequence") }

func (f frame) isPublish() bool { return f.toServer && (f.op == "PUB" || f.op == "HPUB") }

// String formats the frame as a line of a story.
func (f frame) String() string {
	sender := "server"
	if f.toServer {
		sender = "client"
	}
	text := string(f.data)
	if len(text) > 160 {
		text = strings.ToValidUTF8(text[:160], "") + "..."
	}
	head := ""
	if r := f.expected(); r != "" {
		head = " at " + r
	}
	if id := f.header("Nats-Msg-Id"); id != "" {
		head += " " + id
	}
	return fmt.Sprintf("%s  %s: %s%s %q", f.at.UTC().Format("15:04:05.000"), sender, f.subject, head, text)
}

// verdict is what the tap does with a frame.
type verdict int

const (
	pass verdict = iota
	drop
)

// tap is a relay between the client and the server. Frames of one direction pass in order.
type tap struct {
	*proxy.Relay

	mu    sync.Mutex
	rules map[int]func(frame) verdict
	next  int
	log   []frame
}

func newTap(server string) (*tap, error) {
	t := &tap{rules: map[int]func(frame) verdict{}}
	var err error
	if t.Relay, err = proxy.NewRelay(server, t.pass); err != nil {
		return nil, err
	}
	return t, nil
}

// rule adds a rule, which sees each frame before it passes. The returned function removes it.
// A rule runs without the tap's lock, and may take its time: the frames behind it wait.
func (t *tap) rule(f func(frame) verdict) (remove func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.next
	t.next++
	t.rules[n] = f
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.rules, n)
	}
}

// frames returns those frames so far that choose selects, dropped ones included.
func (t *tap) frames(choose func(frame) bool) (all []frame) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.log {
		if choose(f) {
			all = append(all, f)
		}
	}
	return all
}

func (t *tap) pass(to io.WriteCloser, from io.Reader, toServer bool) {
	defer func() {
		switch p := recover().(type) {
		case nil, stop: // a rule met the end of its scenario
		default:
			panic(p)
		}
	}()
	in := bufio.NewReaderSize(from, 64<<10)
	for {
		f, err := readFrame(in)
		if err != nil {
			return
		}
		f.toServer = toServer
		if t.judge(f) == drop {
			continue
		}
		if _, err := to.Write(f.raw); err != nil {
			return
		}
	}
}

func (t *tap) judge(f frame) verdict {
	const most = 20_000
	t.mu.Lock()
	if f.subject != "" && len(t.log) < most {
		t.log = append(t.log, f)
	}
	rules := make([]func(frame) verdict, 0, len(t.rules))
	for n := range t.next {
		if r := t.rules[n]; r != nil {
			rules = append(rules, r)
		}
	}
	t.mu.Unlock()
	result := pass
	for _, r := range rules {
		if r(f) == drop {
			result = drop
		}
	}
	return result
}

// readFrame reads one message of the NATS protocol.
func readFrame(in *bufio.Reader) (f frame, err error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return f, err
	}
	f.at, f.raw = time.Now(), line
	words := strings.Fields(string(line))
	if len(words) == 0 {
		return f, nil
	}
	f.op = strings.ToUpper(words[0])
	sizes, least := 1, 3 // PUB subject [reply] size
	switch f.op {
	case "PUB":
	case "HPUB":
		sizes, least = 2, 4
	case "MSG": // with the number of the subscription
		least = 4
	case "HMSG":
		sizes, least = 2, 5
	default:
		return f, nil
	}
	if len(words) < least || len(words) > least+1 {
		return f, fmt.Errorf("read frame: %q", line)
	}
	f.subject = words[1]
	if len(words) == least+1 {
		f.reply = words[len(words)-sizes-1]
	}
	total, err := strconv.Atoi(words[len(words)-1])
	if err != nil || total < 0 || total > 64<<20 {
		return f, fmt.Errorf("read frame: %q", line)
	}
	body := make([]byte, total+len("\r\n"))
	if _, err := io.ReadFull(in, body); err != nil {
		return f, err
	}
	head := 0
	if sizes == 2 {
		if head, err = strconv.Atoi(words[len(words)-2]); err != nil || head > total {
			return f, errors.Join(fmt.Errorf("read frame: %q", line), err)
		}
	}
	f.head, f.data = body[:head], body[head:total]
	f.raw = bytes.Join([][]byte{line, body}, nil)
	return f, nil
}
