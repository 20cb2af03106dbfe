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

// The roles of a child process, which Config.Command takes.
const (
	NodeCommand   = "node"   // with a NodeSpec
	ServerCommand = "server" // with a ServerSpec
)

// Config says what to torture, and how.
type Config struct {
	Seed     uint64
	Duration time.Duration

	// Lease of the namespace.
	Lease time.Duration

	// Workers run slots, and every second worker publishes slots too. Producers only
	// publish.
	Workers, Producers int

	// Servers is how many servers to start, kill and end. 0: the servers are the user's,
	// and are left alone.
	Servers int

	// Namespace must not exist. It is removed at the end.
	Namespace string

	// Dir holds the record and the logs. It must exist.
	Dir string

	// Command returns the command that runs this program in a role. The child reads its
	// spec, as JSON, from the first line of its stdin, and ends when its stdin does.
	Command func(role string) *exec.Cmd

	// Connect connects to the user's servers. Server, Context and Creds name the same
	// servers for the fleet. They are not used if torture starts servers.
	Connect                func(ctx context.Context) (*nats.Conn, error)
	Server, Context, Creds string

	// Progress, if set, is called every second.
	Progress func(Status)

	Logger *slog.Logger
}

// Status is the progress of a run.
type Status struct {
	Phase       string
	Passed      time.Duration
	Outcomes    int
	Slots       int // that must get an outcome
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
	notes   *recorder // the faults, and when this process did not run

	cases       []plan.Case
	from, until time.Time     // of the slots, by the broker's clock
	fromBoot    time.Duration // from, as a reading of boot.Now
	began       time.Time     // from, by the local clock

	// fleetCtx ends when no process may be started any more.
	fleetCtx  context.Context
	fleetDown context.CancelFunc
	failed    context.CancelCauseFunc

	mu         sync.Mutex
	phase      string
	clock      promise.Clock
	faults     map[string]int
	violations []promise.Violation
}

// Run tortures for the duration, lets the fleet settle, and checks. It returns an error
// only if the run could not be carried out; what it found is in the report.
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

// open starts the servers, connects, and creates the namespace.
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

// connect connects to a server. It waits until a server that torture started is up.
func (t *torture) connect(ctx context.Context, server string) (*nats.Conn, error) {
	if t.shape.Servers == 0 {
		return t.cfg.Connect(ctx)
	}
	for began := time.Now(); ; {
		// Reconnect at once: writes that the server republishes meanwhile are missed.
		nc, err := nats.Connect(server, nats.Name("cronce torture"), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))
		if err == nil || time.Since(began) > time.Minute {
			return nc, err
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return nil, context.Cause(ctx)
		}
	}
}

// refuseExisting fails if the namespace exists: it may be in use.
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
				return fmt.Errorf("namespace %q exists (stream %s is there): torture creates its namespace and removes it: choose another name, or none", t.cfg.Namespace, stream)
			}
			if ctx.Err() != nil || t.shape.Servers == 0 {
				return fmt.Errorf("look for stream %s: %w", stream, err)
			}
			sleep(ctx, 100*time.Millisecond) // the cluster has no leader yet
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

// define writes the jobs to the registry. They start and end with the torture, so that
// it is known exactly which slots must exist.
func (t *torture) define(ctx context.Context) error {
	for range 5 {
		if err := askTime(ctx, t.nc, t.cfg.Namespace+"_slots", &t.clock); err != nil {
			return err
		}
	}
	now, _ := t.clock.At(boot.Now())
	const early = 4 * time.Second // to write the definitions, and to start the fleet
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

// rage carries out the plan.
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

// patience is how long settle waits for the next outcome. The fleet finds a lost slot
// within two minutes.
func (t *torture) patience() time.Duration { return max(150*time.Second, 5*t.cfg.Lease) }

// settle waits until every slot has an outcome, or no more outcomes come.
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

// stop ends each process of the fleet with a TERM.
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

// end ends every process, removes every stream and closes every connection. It is called
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

// remove deletes the namespace.
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

// fail ends the run with an error.
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
