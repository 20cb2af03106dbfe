package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/fleet/boot"
	"github.com/cronce-io/cronce/internal/lab/proxy"
	"github.com/cronce-io/cronce/lab/torture/plan"
	"github.com/cronce-io/cronce/lab/torture/promise"
)

// member is a process of the fleet, such as worker 1, over all its lives. A life begins when the
// process is started, and ends with it. At most one life runs at a time.
type member struct {
	t     *torture
	index int
	name  string
	proxy *proxy.Proxy

	mu   sync.Mutex
	life int
	now  *process // the current life; nil: no life runs
	// faulted is true if a fault ended the last life. The fault itself starts the next one.
	faulted bool

	// read is the offset up to which the member's record was read. up and running are what the
	// current life recorded there: whether it is up, and how many of its handlers run.
	read    int64
	up      bool
	running int
}

func (t *torture) newMember(i int) (*member, error) {
	name := fmt.Sprintf("w%d", i+1)
	if i >= t.cfg.Workers {
		name = fmt.Sprintf("p%d", i-t.cfg.Workers+1)
	}
	p, err := t.proxyOf(i)
	if err != nil {
		return nil, err
	}
	m := &member{t: t, index: i, name: name, proxy: p}
	p.Time([]byte(t.subjectOf(plan.WriteNodes)), m.noteHeartbeat)
	return m, nil
}

// noteHeartbeat records how long the servers took to answer a heartbeat of the current life, if that
// was long. A process that ends may have no life by then.
func (m *member) noteHeartbeat(took time.Duration) {
	if life := m.current(); life != "" && took > promise.SlowAnswer {
		m.t.note(promise.Line{What: promise.LineHeld, Of: life, From: boot.Now() - took})
	}
}

func (m *member) recordPath() string { return filepath.Join(m.t.cfg.Dir, m.name+".jsonl") }

func (m *member) jobFile() string { return filepath.Join(m.t.cfg.Dir, m.name+".jobs") }

// current returns the name of the current life. Empty: no life runs.
func (m *member) current() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now == nil {
		return ""
	}
	return m.now.name
}

// begin starts the next life of the process, unless a life runs.
func (m *member) begin() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now != nil {
		return nil
	}
	m.life++
	t := m.t
	spec := NodeSpec{
		Process: fmt.Sprintf("%s.%d", m.name, m.life), Host: m.name,
		Namespace: t.cfg.Namespace, Lease: t.cfg.Lease, Seed: t.cfg.Seed,
		From: t.from, Boot: t.fromBoot, Duration: t.cfg.Duration,
		Produce: t.cfg.Publishes(m.index), Work: m.index < t.cfg.Workers,
		Record: m.recordPath(), Jobs: m.jobFile(), Proxy: m.proxy.Address(), ClockOffset: t.cfg.Offset(m.index, m.life),
		Server: t.cfg.Server, Context: t.cfg.Context, Creds: t.cfg.Creds,
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	var p *process
	if t.isForeign(m.index) {
		p, err = t.startForeign(spec)
	} else {
		p, err = t.start(spec.Process, NodeRole, string(data))
	}
	if err != nil {
		return err
	}
	m.now, m.faulted, m.up, m.running = p, false, false, 0
	go m.watch(p)
	return nil
}

// watch waits for the end of a life. If no fault ended the life, watch begins the next one. It
// reports the end as a crash, unless a handler ended the process as planned. A process that could
// not write its record ends the whole run instead.
func (m *member) watch(p *process) {
	<-p.ended
	m.t.noteDeath(p)
	m.mu.Lock()
	byFault := m.now != p
	if !byFault {
		m.now = nil
	}
	m.mu.Unlock()
	if p.cmd.ProcessState.ExitCode() == unrecorded {
		m.t.fail(fmt.Errorf("process %s could not write its record in %s: is the disk full?", p.name, m.t.cfg.Dir))
		return
	}
	if byFault {
		return
	}
	if p.cmd.ProcessState.ExitCode() != diedByItself {
		m.t.addViolation(promise.Violation{Rule: "crash", Detail: fmt.Sprintf("process %s ended by itself: %s", p.name, p.cmd.ProcessState), Evidence: []string{p.logTail()}})
	} else {
		m.t.count("died in a handler")
	}
	if wire.Wait(m.t.fleetCtx, time.Second) && !m.isFaulted() {
		m.restart()
	}
}

// restart begins the next life, unless a life runs.
func (m *member) restart() {
	if m.t.fleetCtx.Err() != nil {
		return
	}
	if err := m.begin(); err != nil {
		m.t.fail(err)
	}
}

// detach returns the current life to a caller that will end it. It notes that a fault ended the
// life, so that watch does not report that end.
func (m *member) detach() *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.now
	m.now, m.faulted = nil, true
	return p
}

// isFaulted reports whether a fault ended the last life, and will start the next one.
func (m *member) isFaulted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.faulted
}

// kill ends the current life.
func (m *member) kill() {
	if p := m.detach(); p != nil {
		p.kill()
	}
}

// stuckAfter is how long a process may take to end after a TERM: the grace of its
// handlers, the time that a handler has to return, the last write, and the delays of a busy
// machine.
const stuckAfter = grace + 5*time.Second + 2*time.Second + 15*time.Second

// term ends the current life with a TERM, and with a KILL if that takes too long.
func (m *member) term() {
	p := m.detach()
	if p == nil {
		return
	}
	p.signal(termSignal)
	select {
	case <-p.ended:
	case <-time.After(stuckAfter):
		m.t.addViolation(promise.Violation{Rule: "stuck", Detail: fmt.Sprintf("process %s did not end within %v of a TERM", p.name, stuckAfter), Evidence: []string{p.logTail()}})
		p.kill()
		return
	}
	// If the signal itself ended the process, the process had just started and has logged nothing.
	if code := p.cmd.ProcessState.ExitCode(); code != 0 && code != diedByItself && code != unrecorded && (code > 0 || p.logTail() != "") {
		m.t.addViolation(promise.Violation{Rule: "crash", Detail: fmt.Sprintf("process %s ended with %s after a TERM", p.name, p.cmd.ProcessState), Evidence: []string{p.logTail()}})
	}
}

// freeze stops the current life for a fault. The returned function continues the life, and
// records how long it was stopped. The process cannot be trusted to record that: it may be killed
// as soon as it wakes.
func (m *member) freeze(f plan.Fault) func() {
	m.mu.Lock()
	p := m.now
	m.mu.Unlock()
	if p == nil {
		return func() {}
	}
	since := boot.Now()
	p.signal(stopSignal)
	return func() {
		p.signal(contSignal)
		m.t.noteFault(f, p.name, since)
	}
}

// hangUp sends a HUP if the process is up. Before that, a HUP would end the process.
func (m *member) hangUp() {
	m.readRecord()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now != nil && m.up && !m.t.isForeign(m.index) { // a client in another language reads no file of jobs
		m.now.signal(hangupSignal)
	}
}

// busy reports whether a handler runs in the current life.
func (m *member) busy() bool {
	m.readRecord()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running > 0
}

// readRecord reads what the member has recorded since the last call.
func (m *member) readRecord() {
	m.mu.Lock()
	defer m.mu.Unlock()
	lines, read, err := readLines(m.recordPath(), m.read)
	if err != nil {
		return // the report reads the record too, and fails
	}
	m.read = read
	for _, l := range lines {
		switch {
		case m.now == nil || l.Process != m.now.name:
		case l.What == promise.LineUp:
			m.up = true
		case l.What == promise.LineStart:
			m.running++
		case l.What == promise.LineEnd:
			m.running--
		}
	}
}

// untilBusy waits until a handler runs, for five seconds at most.
func (m *member) untilBusy(ctx context.Context) {
	for began := time.Now(); time.Since(began) < 5*time.Second; {
		if m.busy() {
			return
		}
		if !wire.Wait(ctx, 20*time.Millisecond) {
			return
		}
	}
}

// isForeign reports whether a member is a client in another language: every second worker, and
// every second process that only produces. The other processes run this program, and do what the
// client may leave to others.
func (t *torture) isForeign(index int) bool {
	if t.cfg.ForeignCommand == nil {
		return false
	}
	if index >= t.cfg.Workers {
		index -= t.cfg.Workers
	}
	return index%2 == 1
}

// proxyOf starts the proxy of a member. A client in another language connects to the proxy as to a
// server. That is why there may be only one server: from a cluster, the client would learn the
// addresses of the other servers, and connect to them without the proxy.
func (t *torture) proxyOf(index int) (*proxy.Proxy, error) {
	target := "" // the client's dialer names it
	if t.isForeign(index) {
		target = strings.TrimPrefix(t.nc.ConnectedUrl(), "nats://")
	}
	p, err := proxy.To(target)
	if err == nil {
		p.SetDistance(t.cfg.Distance)
	}
	return p, err
}

// startForeign starts a life of a client in another language. It configures the client by the
// environment variables that docs/conformance.md describes.
func (t *torture) startForeign(spec NodeSpec) (*process, error) {
	cmd := t.cfg.ForeignCommand()
	var jobs, queues []string
	if spec.Work {
		jobs, queues = plan.ForeignNames(t.cases), plan.Queues(slices.Values(t.cases))
	}
	produce := "0"
	if spec.Produce {
		produce = "1"
	}
	cmd.Env = append(os.Environ(),
		"CRONCE_UNDER_TEST_SERVER=nats://"+spec.Proxy, "CRONCE_UNDER_TEST_NAMESPACE="+spec.Namespace, "CRONCE_UNDER_TEST_NAME="+spec.Host,
		"CRONCE_UNDER_TEST_QUEUES="+strings.Join(queues, ","), "CRONCE_UNDER_TEST_JOBS="+strings.Join(jobs, ","), "CRONCE_UNDER_TEST_PRODUCE="+produce,
		fmt.Sprintf("CRONCE_UNDER_TEST_CLOCK_OFFSET_MS=%d", spec.ClockOffset.Milliseconds()),
		"CRONCE_UNDER_TEST_RECORD="+spec.Record, "CRONCE_UNDER_TEST_PROCESS="+spec.Process,
		fmt.Sprintf("CRONCE_UNDER_TEST_BOOT=%d", int64(boot.Now())),
	)
	return t.startCommand(spec.Process, cmd, "")
}
