package sweep

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Ledger is the ledger, for reading only. kv.Ledger satisfies it.
type Ledger interface {
	// Changes yields the last write of each slot that was written since the cursor, and moves the
	// cursor.
	Changes(ctx context.Context, at *wire.Cursor) iter.Seq2[kv.Change, error]
	Read(ctx context.Context, s job.Slot) (job.Record, uint64, error)
}

// Locks are the locks of the jobs, for reading only. kv.Locks satisfies it.
type Locks interface {
	// Changes yields the last write of each lock that was written since the cursor, and moves the
	// cursor.
	Changes(ctx context.Context, at *wire.Cursor) iter.Seq2[kv.LockChange, error]
}

// Messages lists the slots that have a message. stream.Slots and stream.Timers satisfy it.
type Messages interface {
	Waiting(ctx context.Context, f stream.WaitingFilter) iter.Seq2[stream.WaitingSlot, error]
}

// Slots is the stream of slots. stream.Slots satisfies it.
type Slots interface {
	Messages
	Publish(ctx context.Context, queue string, m core.Message, payload []byte) (duplicate bool, err error)
}

// Nodes lists the nodes. kv.Nodes satisfies it.
type Nodes interface {
	List(ctx context.Context) ([]exchange.NodeEvent, error)
}

// Registry reads definitions. kv.Jobs satisfies it.
type Registry interface {
	Read(ctx context.Context, name string) (plans.Entry, uint64, error)
}

// Ends stores the end of the last sweep. kv.SweepEnds satisfies it.
type Ends interface {
	Read(ctx context.Context) (kv.SweepEnd, error)
	Write(ctx context.Context, end exchange.SweepEnd, revision uint64) (uint64, error)
}

// Config of a Sweeper. All fields except Logger are required.
type Config struct {
	// Node is the incarnation that sweeps.
	Node string

	Ledger   Ledger
	Locks    Locks
	Lines    Lines
	Slots    Slots
	Timers   Messages
	Nodes    Nodes
	Registry Registry
	Ends     Ends

	// Seen is the newest write of the ledger that this process knows. It outlives the
	// incarnation.
	Seen *Seen

	// After returns the jobs that run after the named one, as far as this process knows them. It
	// sends no request.
	After func(name string) []plans.Entry

	// Late returns the jobs that ask for an alert about slots that have not started in time, as
	// far as this process knows them. It sends no request. Alerts and AlertStates are used for
	// these jobs.
	Late        func() []plans.Entry
	Alerts      Alerts
	AlertStates AlertStates

	// Now is the broker's clock. Plausible returns an error while it is implausible: then
	// no pass is made, because a pass judges by age.
	Now       func() time.Time
	Plausible func() error

	Lease, Horizon time.Duration

	// Offered is called with each slot that was offered again, one call at a time. It must
	// not block.
	Offered func(job.Slot)

	// Rewound is called with an event if the ledger has lost writes. It must not block.
	Rewound func(job.Event)

	// Logger defaults to none.
	Logger *slog.Logger
}

const (
	// every is the time between two passes. A slot counts as lost when its next step is overdue by
	// stallAfter. A lost slot is found within two minutes, even if the sweeping node is killed
	// just before its pass: another node takes its place when the lease has expired.
	every      = 30 * time.Second
	stallAfter = 30 * time.Second

	// limit bounds the time of a pass. If a pass exceeds its bound, the bound of the next one is
	// twice as long, up to maxLimit: listing millions of messages of a distant broker takes longer
	// than a minute. atOnce is how many slots a pass offers at the same time.
	limit    = time.Minute
	maxLimit = 16 * limit
	atOnce   = 32

	// ownedEvery is how often the sweep looks for running slots of live nodes whose messages are
	// lost, and for how long their records must not have changed. The interval is long, because
	// a handler may run for long, and each search lists all messages. maxOwned bounds the slots
	// that one pass looks at.
	ownedEvery = 5 * time.Minute
	maxOwned   = 1000

	// maxPublished bounds the slots without a record that are kept. remembered is how long a
	// node that does not sweep keeps them, in case it has to begin.
	maxPublished = 100_000
	remembered   = 10 * time.Minute

	// minChunk and maxChunk bound the size of each slice in Sweeper.recent.
	minChunk, maxChunk = 16, 1024
)

// Sweeper makes the passes of one incarnation. Published may be called while Run runs.
type Sweeper struct {
	cfg Config

	// recent has the slots that were published since the last pass, in several slices. A map, or
	// one slice that grows, would slow the producer down. count is the number of slots.
	mu     sync.Mutex
	recent [][]publishedSlot
	count  int

	// The goroutine of Run uses the rest. While the goroutines of a pass offer suspects or send
	// alerts, they hold mu for their changes.
	published         map[job.Slot]publishedSlot
	ledgerAt, locksAt wire.Cursor
	unfinished        map[job.Slot]kv.Change
	locks             map[string]kv.LockChange // the locks with a slot, or with a line
	linesAt, purged   map[string]uint64        // by job: up to where the entries of its line do not count any more, and were removed
	ownedAt           time.Time                // when running slots of live nodes were last suspected
	listAgain         map[string]time.Time     // by job, or "" for all: no listing of its messages before
	leftovers         map[strandedKey]bool     // stranded and unserved messages of slots that have ended
	strandedAt        strandedKey              // the last stranded message that earlier passes of this round have looked at
	moved             movedJobs

	// chained are the slots of jobs that run after others, if they have no known record.
	chained map[job.Slot]chainedSlot

	// awaited are the slots of jobs with on_late that are not known to have started in time.
	// seeded is true once they include the slots that other nodes published earlier.
	awaited map[job.Slot]awaited
	seeded  bool

	// unreadable are the records that this program cannot read, and why.
	unreadable map[job.Slot]error

	// youngerAt is when this node last listed the nodes, if there was an older producer then. Zero: there
	// was none.
	youngerAt time.Time

	end    exchange.SweepEnd // what this pass stores about itself
	began  time.Time         // when the first turn was made
	limit  time.Duration     // of the next pass
	denied bool              // this login may not write Ends
}

// publishedSlot is a slot that this node's producer published, or knows to be published, and that
// has no record yet as far as this node knows.
type publishedSlot struct {
	slot     job.Slot
	queue    string
	due      time.Time
	revision uint64 // of its job
	caughtUp bool
}

// New returns a sweeper; see Run.
func New(cfg Config) *Sweeper {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	s := &Sweeper{cfg: cfg, published: map[job.Slot]publishedSlot{}, limit: limit}
	s.reset()
	return s
}

// Published notes a slot that this node's producer has published, or knows to be published. It
// does not block.
func (s *Sweeper) Published(queue string, m core.Message) {
	if m.Missed > 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == maxPublished {
		return
	}
	last := len(s.recent) - 1
	if last < 0 || len(s.recent[last]) == cap(s.recent[last]) {
		s.recent = append(s.recent, make([]publishedSlot, 0, min(max(s.count, minChunk), maxChunk)))
		last++
	}
	s.recent[last] = append(s.recent[last], publishedSlot{m.Slot, queue, m.Due, m.JobRevision, m.CaughtUp})
	s.count++
}

// takeRecent returns the slots that were published since the last pass, and adds them to published.
func (s *Sweeper) takeRecent() []publishedSlot {
	s.mu.Lock()
	chunks := s.recent
	s.recent, s.count = nil, 0
	s.mu.Unlock()
	recent := slices.Concat(chunks...)
	for _, p := range recent[:min(len(recent), maxPublished-len(s.published))] {
		s.published[p.slot] = p
	}
	return recent
}

// Run makes a pass twice a minute, while this node is the one that sweeps, until ctx ends. A
// pass that fails is made again at the next turn.
func (s *Sweeper) Run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := s.turn(ctx); err != nil && ctx.Err() == nil {
			s.logFailure(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// logFailure logs why a pass failed. No watch notices that the stream of slots or the ledger was
// removed, and the worker repeats its requests without a log.
func (s *Sweeper) logFailure(err error) {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s.cfg.Logger.Error("a part of the namespace is gone, and slots wait for it",
			"error", err, "fix", "see which with cronce doctor; restore it from a backup, or let cronce setup create it without its content")
		return
	}
	s.cfg.Logger.Warn("sweep failed; the next one begins in half a minute", "error", err)
}

var errTooLong = errors.New("the pass has taken too long")

// turn makes a pass if this node is the one that sweeps.
func (s *Sweeper) turn(ctx context.Context) error {
	if err := s.cfg.Plausible(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.limit, errTooLong)
	defer cancel()
	defer func() {
		if errors.Is(context.Cause(ctx), errTooLong) {
			s.limit = min(2*s.limit, maxLimit)
		}
	}()
	if s.began.IsZero() {
		s.began = s.cfg.Now()
	}
	last, err := s.lastEnd(ctx)
	if err != nil {
		return err
	}
	if err := s.checkRewound(ctx, &last); err != nil {
		return err
	}
	if s.leavesItToOthers(last) {
		s.reset()
		return nil
	}
	nodes, err := s.cfg.Nodes.List(ctx)
	if err != nil {
		return err
	}
	live := s.liveNodes(nodes)
	ahead := s.ahead(live)
	if s.youngerAt = (time.Time{}); ahead > 0 {
		s.youngerAt = s.cfg.Now()
	}
	if ahead > 0 && !s.standsIn(last, ahead) {
		s.reset()
		return nil
	}
	if err := s.Pass(ctx, live); err != nil {
		return err
	}
	return s.storeEnd(ctx, last)
}

// reset forgets what only the sweeping node needs.
func (s *Sweeper) reset() {
	s.ledgerAt, s.unfinished, s.chained = wire.Cursor{}, map[job.Slot]kv.Change{}, map[job.Slot]chainedSlot{}
	s.locksAt, s.locks = wire.Cursor{}, map[string]kv.LockChange{}
	s.linesAt, s.purged = map[string]uint64{}, map[string]uint64{}
	s.ownedAt, s.moved = time.Time{}, movedJobs{registry: s.cfg.Registry}
	s.strandedAt, s.listAgain = strandedKey{}, map[string]time.Time{}
	s.leftovers, s.unreadable = map[strandedKey]bool{}, map[job.Slot]error{}
	s.awaited, s.seeded = map[job.Slot]awaited{}, false
	s.takeRecent()
	now, late := s.cfg.Now(), s.jobsWithLateAlert()
	for slot, p := range s.published {
		if now.Sub(p.due) > remembered+late[slot.Job].Job.LateAfter {
			delete(s.published, slot)
		}
	}
}

// Pass makes one pass. It skips and notes what cannot be read. If it returns an error, the pass is
// incomplete.
func (s *Sweeper) Pass(ctx context.Context, live []exchange.NodeEvent) error {
	alive := map[string]bool{}
	for _, n := range live {
		alive[n.Name] = true
	}
	s.moved.begin(s.cfg.Now(), live)
	late := s.jobsWithLateAlert()
	if err := s.await(ctx, late, s.takeRecent()); err != nil {
		return err
	}
	s.end = exchange.SweepEnd{}
	if err := s.readChanges(ctx, late); err != nil {
		return err
	}
	suspects, stopped := s.suspects(alive), s.stoppedLocks()
	hasMessage := map[job.Slot]bool{}
	for _, p := range suspects {
		hasMessage[p.slot] = false
	}
	for _, l := range stopped {
		l.addTo(hasMessage)
	}
	s.addChained(hasMessage)
	stranded, err := s.listMessages(ctx, hasMessage)
	if err != nil {
		return err
	}
	if err := s.offerSuspects(ctx, suspects, hasMessage); err != nil {
		return err
	}
	if err := s.offerStranded(ctx, stranded, hasMessage); err != nil {
		return err
	}
	if err := s.offerStopped(ctx, stopped, hasMessage); err != nil {
		return err
	}
	if err := s.tendLines(ctx); err != nil {
		return err
	}
	if err := s.offerChained(ctx, hasMessage); err != nil {
		return err
	}
	return s.alertLate(ctx, late)
}

// readChanges reads what was written to the locks and the ledger since the last pass. The locks
// come first: nearly all slots that they name have ended by the time the ledger is read.
func (s *Sweeper) readChanges(ctx context.Context, late map[string]plans.Entry) error {
	for c, err := range s.cfg.Locks.Changes(ctx, &s.locksAt) {
		if err != nil {
			return err
		}
		s.noteLock(c)
	}
	for c, err := range s.cfg.Ledger.Changes(ctx, &s.ledgerAt) {
		if err != nil {
			return err
		}
		s.cfg.Seen.Note(c.Slot, c.Revision, c.Time)
		delete(s.unreadable, c.Slot)
		if c.Gone || c.State.Final() || c.State == job.Waiting { // tendLines looks after those that wait
			delete(s.unfinished, c.Slot)
		} else {
			s.unfinished[c.Slot] = c
		}
		delete(s.published, c.Slot)
		s.noteStart(c, late)
		s.noteChained(c)
	}
	return nil
}
