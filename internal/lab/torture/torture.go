package torture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/fleet/boot"
	"github.com/cronce-io/cronce/internal/lab/torture/plan"
	"github.com/cronce-io/cronce/internal/lab/torture/promise"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// The two roles of a child process: what Config.Command is asked for.
const (
	NodeCommand   = "node"   // with a NodeSpec
	ServerCommand = "server" // with a ServerSpec
)

// Config says what is to be tortured, and how.
type Config struct {
	Seed     uint64
	Duration time.Duration

	// Lease of the namespace.
	Lease time.Duration

	// Workers run slots, and every other one publishes them too; Producers only
	// publish.
	Workers, Producers int

	// Servers are started, killed and ended by the torture. 0: the servers are
	// the user's, and left alone.
	Servers int

	// Namespace must not exist yet. It is removed at the end.
	Namespace string

	// Dir is for the record and for logs; it must exist.
	Dir string

	// Command makes this program a child process in a role. The child reads its
	// spec, as JSON, from the first line of its stdin, and ends with the rest.
	Command func(role string) *exec.Cmd

	// Connect connects to the user's servers, which Server, Context and Creds name
	// to the fleet. Servers of our own replace them.
	Connect                func(ctx context.Context) (*nats.Conn, error)
	Server, Context, Creds string

	// Progress, if set, is told every second how it goes.
	Progress func(Status)

	Logger *slog.Logger
}

// Status is how it goes.
type Status struct {
	Phase       string
	Passed      time.Duration
	Outcomes    int
	Slots       int // that will have to have one
	Redelivered int
	Faults      int
	Violations  int
}

// torture is one run.
type torture struct {
	cfg   Config
	shape plan.Shape
	dir   string
	log   *slog.Logger

	nc      *nats.Conn
	conns   []*nats.Conn
	js      jetstream.JetStream
	store   *kv.Store
	witness *witness
	members []*member
	brokers []*broker
	deaths  deaths
	notes   *recorder // what this process did, and when it did not run

	cases       []plan.Case
	from, until time.Time     // of the slots, by the broker's clock
	fromBoot    time.Duration // from, as a reading of boot.Now
	began       time.Time     // from, by the local clock

	// fleetCtx ends when no process is to come back any more.
	fleetCtx  context.Context
	fleetDown context.CancelFunc
	failed    context.CancelCauseFunc

	mu         sync.Mutex
	phase      string
	clock      promise.Clock
	faults     map[string]int
	violations []promise.Violation
}

// Run tortures until the duration is over, lets the fleet settle, and checks. The
// error says that this could not be done, not what was found.
func Run(ctx context.Context, cfg Config) (Report, error) {
	ctx, failed := context.WithCancelCause(ctx)
	defer failed(nil)
	t := &torture{
		cfg: cfg, dir: cfg.Dir, log: cfg.Logger, failed: failed, witness: newWitness(cfg.Namespace),
		shape: plan.Shape{
			Seed: cfg.Seed, Duration: cfg.Duration, Lease: cfg.Lease,
			Workers: cfg.Workers, Makers: cfg.Producers, Servers: cfg.Servers,
		},
		deaths: deaths{at: map[string]time.Duration{}}, faults: map[string]int{}, phase: "starting",
	}
	t.fleetCtx, t.fleetDown = context.WithCancel(ctx)
	defer t.fleetDown()
	notes, err := newRecorder(filepath.Join(cfg.Dir, "torture.jsonl"), promise.TortureProcess)
	if err != nil {
		return Report{}, err
	}
	t.notes = notes
	defer notes.close()
	starved := make(chan struct{})
	defer close(starved)
	go notes.watch(starved)
	defer t.end()
	if cfg.Progress != nil {
		ended := make(chan struct{})
		var telling sync.WaitGroup
		telling.Go(func() { t.tell(ended) })
		defer telling.Wait()
		defer close(ended)
	}
	for _, step := range []func(context.Context) error{t.open, t.define, t.rage, t.settle, t.stop} {
		if err := step(ctx); err != nil {
			if why := context.Cause(ctx); why != nil {
				err = why
			}
			return Report{}, err
		}
	}
	return t.report(ctx)
}

// open starts the servers that are ours, connects, and makes the namespace.
func (t *torture) open(ctx context.Context) error {
	if t.shape.Servers > 0 {
		if err := t.startBrokers(); err != nil {
			return err
		}
	}
	servers := []string{""}
	if t.shape.Servers > 0 {
		servers = strings.Split(t.cfg.Server, ",")
	}
	for _, server := range servers {
		nc, err := t.connect(ctx, server)
		if err != nil {
			return err
		}
		t.conns = append(t.conns, nc)
	}
	var err error
	if t.nc, err = t.connect(ctx, t.cfg.Server); err != nil {
		return err
	}
	if t.js, err = jetstream.New(t.nc); err != nil {
		return err
	}
	if err := t.refuseExisting(ctx); err != nil {
		return err
	}
	return t.setUp(ctx)
}

// connect waits for servers of our own to be there.
func (t *torture) connect(ctx context.Context, server string) (*nats.Conn, error) {
	if t.shape.Servers == 0 {
		return t.cfg.Connect(ctx)
	}
	for began := time.Now(); ; {
		// Back at once when a server is: nothing of what it tells is to be missed.
		nc, err := nats.Connect(server, nats.Name("cronce torture"), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))
		if err == nil || time.Since(began) > time.Minute {
			return nc, err
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return nil, context.Cause(ctx)
		}
	}
}

// refuseExisting: what is there is somebody's.
func (t *torture) refuseExisting(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, stream := range kv.Streams(t.cfg.Namespace) {
		for {
			attempt, cancel := context.WithTimeout(ctx, 3*time.Second)
			_, err := t.js.Stream(attempt, stream)
			cancel()
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				break
			}
			if err == nil {
				return fmt.Errorf("namespace %q exists (stream %s is there): torture works in one of its own, and removes it: name another one, or none", t.cfg.Namespace, stream)
			}
			if ctx.Err() != nil || t.shape.Servers == 0 {
				return fmt.Errorf("look for stream %s: %w", stream, err)
			}
			sleep(ctx, 100*time.Millisecond) // a cluster that has no leader yet
		}
	}
	return nil
}

func (t *torture) setUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	want := job.Settings{Lease: t.cfg.Lease, Replicas: t.shape.Servers}
	for {
		_, err := kv.Setup(ctx, t.js, kv.Options{Namespace: t.cfg.Namespace, Want: want, Logger: t.log})
		if err == nil {
			break
		}
		// A young cluster does not know all its servers yet.
		if t.shape.Servers < 2 || !sleep(ctx, 300*time.Millisecond) {
			return err
		}
	}
	var err error
	if t.store, err = kv.Open(ctx, t.js, kv.Options{Namespace: t.cfg.Namespace, Logger: t.log}); err != nil {
		return err
	}
	if err := republish(ctx, t.js, t.cfg.Namespace); err != nil {
		return err
	}
	for _, nc := range t.conns {
		if err := t.witness.listen(nc); err != nil {
			return err
		}
	}
	return nil
}

// define brings the jobs into the registry, bounded by the time of the torture, so
// that it is known exactly which slots there have to be.
func (t *torture) define(ctx context.Context) error {
	for range 5 {
		if err := askTime(ctx, t.nc, t.cfg.Namespace+"_slots", &t.clock); err != nil {
			return err
		}
	}
	now, _ := t.clock.At(boot.Now())
	const early = 4 * time.Second // for the definitions to be written, and the fleet to be up
	t.from = now.Add(early).Truncate(time.Second)
	t.fromBoot, _ = t.clock.Boot(t.from)
	t.until = t.from.Add(t.cfg.Duration).Truncate(time.Second)
	t.cases = plan.Bounded(t.cfg.Lease, t.from, t.until)
	for i := range t.cases {
		j := &t.cases[i].Job
		d, _, err := core.Upsert(nil, *j, plan.JobOwner, "torture", false)
		if err != nil {
			return err
		}
		d.Nonce = fmt.Sprintf("torture#%d", i)
		if _, err := t.store.Jobs().Write(ctx, d, 0); err != nil {
			return fmt.Errorf("define job %s: %w", j.Name, err)
		}
	}
	return nil
}

// rage lets everything happen that is planned.
func (t *torture) rage(ctx context.Context) error {
	t.enter("torturing")
	for i := range t.shape.Workers + t.shape.Makers {
		m, err := t.newMember(i)
		if err != nil {
			return err
		}
		t.members = append(t.members, m)
		if err := m.begin(); err != nil {
			return err
		}
	}
	t.began = time.Now().Add(t.fromBoot - boot.Now())
	raging, calm := context.WithDeadline(ctx, t.began.Add(t.cfg.Duration))
	defer calm()
	var lanes sync.WaitGroup
	for _, lane := range plan.NewPlan(t.shape).Lanes {
		lanes.Go(func() { t.suffer(raging, lane) })
	}
	lanes.Go(func() { t.watchClock(raging) })
	<-raging.Done()
	lanes.Wait()
	return context.Cause(ctx)
}

func (t *torture) watchClock(ctx context.Context) {
	for sleep(ctx, time.Second) {
		var c promise.Clock
		sent := boot.Now()
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		err := askTime(attempt, t.nc, t.cfg.Namespace+"_slots", &c)
		cancel()
		t.noteAnswer(sent, err)
		if err == nil {
			t.mu.Lock()
			t.clock.Merge(c)
			t.mu.Unlock()
		}
	}
}

// patience is for how long nothing may move before the fleet is taken for settled:
// a lost slot is found by the fleet itself within two minutes.
func (t *torture) patience() time.Duration { return max(150*time.Second, 5*t.cfg.Lease) }

// settle waits until every slot has its outcome, or nothing moves any more.
func (t *torture) settle(ctx context.Context) error {
	t.enter("settling")
	for _, m := range t.members {
		m.again()
	}
	began, moved, left := time.Now(), time.Now(), -1
	for {
		open, err := t.unfinished(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil && open == 0:
			return nil
		case err == nil && open != left:
			moved, left = time.Now(), open
		case time.Since(moved) > t.patience(), time.Since(began) > 2*t.patience():
			t.log.Warn("the fleet does not settle: not all slots have an outcome", "slots", left, "after", time.Since(began).Round(time.Second))
			return nil
		}
		sleep(ctx, time.Second)
	}
}

// stop ends the fleet, each process as an operator would.
func (t *torture) stop(context.Context) error {
	t.enter("stopping")
	t.fleetDown()
	var all sync.WaitGroup
	for _, m := range t.members {
		all.Go(m.term)
	}
	all.Wait()
	return nil
}

// end leaves nothing behind: no process, no stream, no connection. It is called
// once, however the run ends.
func (t *torture) end() {
	t.enter("cleaning up")
	t.fleetDown()
	for _, m := range t.members {
		m.kill()
		m.proxy.close()
	}
	if t.store != nil && t.shape.Servers == 0 {
		t.remove()
	}
	for _, nc := range append(t.conns, t.nc) {
		if nc != nil {
			nc.Close()
		}
	}
	for _, b := range t.brokers {
		if b.now != nil {
			b.now.kill()
		}
	}
}

// remove deletes the namespace. Servers of our own end with all they have.
func (t *torture) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, stream := range kv.Streams(t.cfg.Namespace) {
		for {
			attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
			err := t.js.DeleteStream(attempt, stream)
			cancel()
			if err == nil || errors.Is(err, jetstream.ErrStreamNotFound) {
				break
			}
			if !sleep(ctx, 200*time.Millisecond) {
				t.log.Error("could not remove a stream of the torture; remove it by hand", "stream", stream, "error", err, "command", "nats stream rm "+stream)
				break
			}
		}
	}
}

func (t *torture) enter(phase string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phase = phase
}

func (t *torture) count(fault string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults[fault]++
}

func (t *torture) found(v promise.Violation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.violations = append(t.violations, v)
}

// fail ends the run: it cannot be done.
func (t *torture) fail(err error) { t.failed(err) }

func (t *torture) tell(ended <-chan struct{}) {
	began := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
			t.cfg.Progress(t.status(time.Since(began)))
		}
	}
}

func (t *torture) status(passed time.Duration) Status {
	outcomes, redelivered, _ := t.witness.outcomes()
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Status{Phase: t.phase, Passed: passed, Outcomes: outcomes, Redelivered: redelivered, Violations: len(t.violations)}
	for _, n := range t.faults {
		s.Faults += n
	}
	return s
}
