package torture

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/fleet/boot"
	"github.com/cronce-io/cronce/internal/lab/proxy"
	"github.com/cronce-io/cronce/kv"
	"github.com/cronce-io/cronce/lab/torture/plan"
	"github.com/cronce-io/cronce/lab/torture/promise"
)

// The roles of a child process, which Config.Command takes.
const (
	NodeRole   = "node"   // with a NodeSpec
	ServerRole = "server" // with a ServerSpec
)

// Shape is the size and the length of a run, and its seed.
type Shape = plan.Shape

// Config says what to torture, and how.
type Config struct {
	Shape

	// Distance is how far each process of the fleet is from the servers.
	Distance proxy.Distance

	// Namespace must not exist. Run creates it, and removes it from the user's servers at the end.
	Namespace string

	// Dir holds the record, the logs, and the files of the servers that torture starts. It must exist.
	Dir string

	// Command returns the command that runs this program in a role. The child reads its
	// spec, as JSON, from the first line of its stdin, and ends when its stdin is closed.
	Command func(role string) *exec.Cmd

	// ForeignCommand returns the command of a client in another language. It replaces every second
	// process of the fleet, and Servers must be 1. Nil: the whole fleet runs this program.
	ForeignCommand func() *exec.Cmd

	// Connect connects to the user's servers. Server, Context and Creds name the same
	// servers for the fleet. None of these is used if torture starts servers.
	Connect                func(ctx context.Context) (*nats.Conn, error)
	Server, Context, Creds string

	// Progress, if set, is called every second.
	Progress func(Status)

	Logger *slog.Logger
}

// torture is one run.
type torture struct {
	cfg Config

	nc      *nats.Conn
	conns   []*nats.Conn
	js      jetstream.JetStream
	store   *kv.Store
	removes bool // remove the namespace at the end: it is on the user's servers, and torture created it
	witness *witness
	members []*member
	brokers []*broker
	notes   *recorder // records the faults, and when this process did not run

	cases       []plan.Case
	from, until time.Time     // bounds of the slots, by the broker's clock
	fromBoot    time.Duration // from, as a reading of boot.Now
	began       time.Time     // from, by the local clock

	// fleetCtx ends when no process may be started any more.
	fleetCtx  context.Context
	fleetDown context.CancelFunc
	fail      context.CancelCauseFunc // ends the run, and Run returns the error

	mu         sync.Mutex
	phase      string
	clock      promise.Clock
	faults     map[string]int
	deaths     map[string]time.Duration // when each life of a process ended, by boot.Now
	violations []promise.Violation
}

// Run carries out the faults for the duration, waits until each slot has an outcome, and checks the
// history. It returns an error only if the run could not be carried out. The report has the
// violations.
func Run(ctx context.Context, cfg Config) (Report, error) {
	ctx, failed := context.WithCancelCause(ctx)
	defer failed(nil)
	t := &torture{
		cfg: cfg, fail: failed, witness: newWitness(cfg.Namespace),
		deaths: map[string]time.Duration{}, faults: map[string]int{}, phase: "starting",
	}
	t.fleetCtx, t.fleetDown = context.WithCancel(ctx)
	defer t.fleetDown()
	notes, err := newRecorder(filepath.Join(cfg.Dir, "torture.jsonl"), promise.TortureProcess)
	if err != nil {
		return Report{}, err
	}
	t.notes = notes
	defer notes.close()
	ran := make(chan struct{})
	var disk sync.WaitGroup
	defer disk.Wait()
	defer close(ran)
	go notes.watch(ran)
	disk.Go(func() { t.watchDisk(ran) })
	defer t.end()
	if cfg.Progress != nil {
		ended := make(chan struct{})
		var progress sync.WaitGroup
		progress.Go(func() { t.reportProgress(ended) })
		defer progress.Wait()
		defer close(ended)
	}
	for _, step := range []func(context.Context) error{t.open, t.define, t.runPlan, t.settle, t.stop} {
		if err := step(ctx); err != nil {
			if why := context.Cause(ctx); why != nil {
				err = why
			}
			return Report{}, err
		}
	}
	return t.report(ctx)
}

// runPlan starts the fleet, and carries out the plan.
func (t *torture) runPlan(parent context.Context) error {
	t.setPhase("torturing")
	for i := range t.cfg.Workers + t.cfg.Producers {
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
	ctx, cancel := context.WithDeadline(parent, t.began.Add(t.cfg.Duration))
	defer cancel()
	var lanes sync.WaitGroup
	for _, lane := range plan.NewPlan(t.cfg.Shape).Lanes {
		lanes.Go(func() { t.runLane(ctx, lane) })
	}
	lanes.Go(func() { t.watchClock(ctx) })
	<-ctx.Done()
	lanes.Wait()
	return context.Cause(parent)
}

// watchDisk ends the run if there is no room for more files in its folder, until stop is closed. Servers on
// a full disk store nothing, so no handler starts, and no process fails to write its record.
func (t *torture) watchDisk(stop <-chan struct{}) {
	const least = 256 << 10
	path, every := filepath.Join(t.cfg.Dir, "room"), time.NewTicker(time.Second)
	defer every.Stop()
	for {
		err := os.WriteFile(path, make([]byte, least), 0o600)
		_ = os.Remove(path) // if this fails, the next write replaces it
		if err != nil {
			t.fail(fmt.Errorf("cannot write in %s: is the disk full? %w", t.cfg.Dir, err))
			return
		}
		select {
		case <-stop:
			return
		case <-every.C:
		}
	}
}

// watchClock samples the broker's clock every second.
func (t *torture) watchClock(ctx context.Context) {
	for wire.Wait(ctx, time.Second) {
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

// patience is how long settle waits for the next outcome. The fleet finds a lost slot within two
// minutes. A client in another language may leave slots to others: it naks each of them with a
// delay of up to a minute, perhaps several times until a node that can run the slot receives it.
func (t *torture) patience() time.Duration {
	if t.cfg.ForeignCommand != nil {
		return 10 * time.Minute
	}
	return max(150*time.Second, 5*t.cfg.Lease)
}

// settle waits until every slot has an outcome. It gives up if no slot has got one for as long as
// patience, or after twice that time.
func (t *torture) settle(ctx context.Context) error {
	t.setPhase("settling")
	for _, m := range t.members {
		m.restart()
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
			after := time.Since(began).Round(time.Second)
			if left < 0 {
				return fmt.Errorf("count the slots without an outcome, for %v: %w", after, err)
			}
			t.cfg.Logger.Warn("gave up waiting for slots without an outcome", "slots", left, "after", after)
			return nil
		}
		wire.Wait(ctx, time.Second)
	}
}

// stop ends each process of the fleet with a TERM.
func (t *torture) stop(context.Context) error {
	t.setPhase("stopping")
	t.fleetDown()
	var all sync.WaitGroup
	for _, m := range t.members {
		all.Go(m.term)
	}
	all.Wait()
	return nil
}

// end ends every process, removes the namespace from the user's servers, and closes every
// connection. It is called once, however the run ends.
func (t *torture) end() {
	t.setPhase("cleaning up")
	t.fleetDown()
	for _, m := range t.members {
		m.kill()
		m.proxy.Close()
	}
	if t.removes {
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
