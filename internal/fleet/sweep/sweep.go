package sweep

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Ledger is what the sweep reads of the ledger. kv.Ledger satisfies it.
type Ledger interface {
	// Changes yields what was written since the cursor: of each slot the last write.
	Changes(ctx context.Context, at *kv.Cursor) iter.Seq2[kv.Change, error]
	Read(ctx context.Context, s job.Slot) (job.Record, uint64, error)
}

// Locks is what the sweep reads of the jobs' locks. kv.Locks satisfies it.
type Locks interface {
	// Changes yields what was written since the cursor: of each job the last write.
	Changes(ctx context.Context, at *kv.Cursor) iter.Seq2[kv.LockChange, error]
}

// Messages lists the slots that have a message. kv.Slots and kv.Timers satisfy it.
type Messages interface {
	Waiting(ctx context.Context, f kv.WaitingFilter) iter.Seq2[kv.WaitingSlot, error]
}

// Slots is the stream of slots. kv.Slots satisfies it.
type Slots interface {
	Messages
	Publish(queue string, m core.Message, payload []byte) (wait func(context.Context) (duplicate bool, err error), err error)
}

// Nodes lists the nodes. kv.Nodes satisfies it.
type Nodes interface {
	List(ctx context.Context) ([]core.NodeEvent, error)
}

// Registry reads definitions. kv.Jobs satisfies it.
type Registry interface {
	Read(ctx context.Context, name string) (core.Entry, uint64, error)
}

// Ends stores the end of the last sweep. kv.SweepEnds satisfies it.
type Ends interface {
	Read(ctx context.Context) (kv.SweepEnd, error)
	Write(ctx context.Context, end core.SweepEnd, revision uint64) (uint64, error)
}

// Config of a Sweeper. The fields with a default are optional.
type Config struct {
	// Node is the incarnation that sweeps.
	Node string

	Ledger   Ledger
	Locks    Locks
	Slots    Slots
	Timers   Messages
	Nodes    Nodes
	Registry Registry
	Ends     Ends

	// Seen is the newest write of the ledger that this process knows. It outlives the
	// incarnation. Default: an empty one.
	Seen *Seen

	// After returns the jobs that come after one, as far as is known here, without a
	// request. Default: none.
	After func(name string) []core.Entry

	// Now is the broker's clock. Plausible returns an error while it is not believed: then
	// no pass is made, because a pass judges by age. Default: it is always believed.
	Now       func() time.Time
	Plausible func() error

	Lease, Horizon time.Duration

	// Offered is called with each slot that was offered again, one call at a time. It must
	// not block. Default: it does nothing.
	Offered func(job.Slot)

	// Rewound is called with an event if the ledger has lost writes. It must not block.
	// Default: it does nothing.
	Rewound func(job.Event)

	// Logger: default, nothing is logged.
	Logger *slog.Logger
}

const (
	// every is how often a pass is made. patience is how long a slot may stand still after
	// it should have moved. A lost slot is found within two minutes, even if the sweeping
	// node is killed just before its pass: no other takes its turn for a lease.
	every    = 30 * time.Second
	patience = 30 * time.Second

	// limit bounds the time of a pass, atOnce how many slots it offers at the same time.
	limit  = time.Minute
	atOnce = 32

	// overdue is how long no pass may have come to its end before any producer makes one.
	// The oldest producer may be stuck, or may not exist: a login that may write the nodes
	// bucket can invent one.
	overdue = 3 * every

	// ownedEvery is how often the sweep looks for running slots of live nodes whose
	// messages are lost, and how long their records must have stood still. A long
	// handler is in order, and to look costs a listing of all messages. maxOwned bounds
	// the slots that one pass looks at.
	ownedEvery = 5 * time.Minute
	maxOwned   = 1000

	// maxHanded bounds the slots without a record that are kept. remembered is how long a
	// node that does not sweep keeps them, in case it has to begin.
	maxHanded  = 100_000
	remembered = 10 * time.Minute

	// leastFresh and mostFresh bound the slots that are kept in one piece of memory.
	leastFresh, mostFresh = 16, 1024
)

// Sweeper makes the passes of one incarnation. Its methods are safe for concurrent use.
type Sweeper struct {
	cfg Config

	// fresh is what was handed out since the last pass, in pieces: a map, or one slice that
	// grows, would cost the producer a good part of a publication. count is how many there
	// are.
	mu    sync.Mutex
	fresh [][]handed
	count int

	// Only the goroutine of Run uses these.
	handed            map[job.Slot]handed
	ledgerAt, locksAt kv.Cursor
	open              map[job.Slot]kv.Change
	locks             map[string]kv.LockChange // in which there is a slot
	owned             time.Time                // when running slots of live nodes were looked at last
	stays             map[job.Slot]stay
	remains           map[remains]bool // stranded messages of slots that have ended
	// follow are the slots that should follow from others.
	follow map[job.Slot]follower

	// unreadable are the records that this program cannot read, and why.
	unreadable map[job.Slot]error
	// end is what this pass stores about itself. began is when the first turn was made.
	end    core.SweepEnd
	began  time.Time
	denied bool // this login may not write Ends
}

// handed is a slot that this node's producer handed out, and that has no record yet as far
// as is known.
type handed struct {
	slot     job.Slot
	queue    string
	due      time.Time
	revision uint64 // of its job
	caughtUp bool
}

// New returns a sweeper; see Run.
func New(cfg Config) *Sweeper {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Offered == nil {
		cfg.Offered = func(job.Slot) {}
	}
	if cfg.Plausible == nil {
		cfg.Plausible = func() error { return nil }
	}
	if cfg.Rewound == nil {
		cfg.Rewound = func(job.Event) {}
	}
	if cfg.Seen == nil {
		cfg.Seen = &Seen{}
	}
	if cfg.After == nil {
		cfg.After = func(string) []core.Entry { return nil }
	}
	s := &Sweeper{cfg: cfg, handed: map[job.Slot]handed{}}
	s.rest()
	return s
}

// Handed notes a slot that this node's producer has published, or knows to be published. It
// does not block.
func (s *Sweeper) Handed(queue string, m core.Message) {
	if m.Missed > 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == maxHanded {
		return
	}
	last := len(s.fresh) - 1
	if last < 0 || len(s.fresh[last]) == cap(s.fresh[last]) {
		s.fresh = append(s.fresh, make([]handed, 0, min(max(s.count, leastFresh), mostFresh)))
		last++
	}
	s.fresh[last] = append(s.fresh[last], handed{m.Slot, queue, m.Due, m.JobRevision, m.CaughtUp})
	s.count++
}

// takeFresh adds what was handed out since the last pass to handed.
func (s *Sweeper) takeFresh() {
	s.mu.Lock()
	fresh := s.fresh
	s.fresh, s.count = nil, 0
	s.mu.Unlock()
	for _, some := range fresh {
		for _, h := range some[:min(len(some), maxHanded-len(s.handed))] {
			s.handed[h.slot] = h
		}
	}
}

// Run makes a pass twice a minute, while this node is the one that sweeps, until ctx ends. A
// pass that fails is made again at the next turn.
func (s *Sweeper) Run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := s.turn(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Logger.Warn("sweep failed; the next one begins in half a minute", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// turn makes a pass if this node is the one that sweeps.
func (s *Sweeper) turn(ctx context.Context) error {
	if err := s.cfg.Plausible(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if s.began.IsZero() {
		s.began = s.cfg.Now()
	}
	nodes, err := s.cfg.Nodes.List(ctx)
	if err != nil {
		return err
	}
	last, err := s.lastEnd(ctx)
	if err != nil {
		return err
	}
	if err := s.compare(ctx, &last); err != nil {
		return err
	}
	alive, first := s.look(nodes)
	if !first && !s.standsIn(last) {
		s.rest()
		return nil
	}
	if err := s.Pass(ctx, alive); err != nil {
		return err
	}
	return s.storeEnd(ctx, last)
}

// rest forgets what only the sweeping node needs.
func (s *Sweeper) rest() {
	s.ledgerAt, s.open, s.follow = kv.Cursor{}, map[job.Slot]kv.Change{}, map[job.Slot]follower{}
	s.locksAt, s.locks, s.stays = kv.Cursor{}, map[string]kv.LockChange{}, map[job.Slot]stay{}
	s.owned = time.Time{}
	s.remains, s.unreadable = map[remains]bool{}, map[job.Slot]error{}
	s.takeFresh()
	now := s.cfg.Now()
	for slot, h := range s.handed {
		if now.Sub(h.due) > remembered {
			delete(s.handed, slot)
		}
	}
}

// look returns the nodes that are alive, and whether this one is the oldest producer among
// them: the oldest remembers most. It judges by the broker's timestamps, which is enough for
// a guess. A record that cannot be read counts as a live node while it is written.
func (s *Sweeper) look(nodes []core.NodeEvent) (alive map[string]bool, first bool) {
	alive = map[string]bool{}
	now := s.cfg.Now()
	var oldest core.Node
	for _, n := range nodes {
		lease := max(s.cfg.Lease, n.Node.Lease)
		if now.Sub(n.Time) >= lease || n.Err == nil && n.Node.State != core.NodeAlive {
			continue
		}
		alive[n.Name] = true
		if n.Node.Producer && (oldest.Name == "" || cmp.Or(n.Node.Began().Compare(oldest.Began()), cmp.Compare(n.Name, oldest.Name)) < 0) {
			oldest = n.Node
		}
	}
	return alive, oldest.Name == s.cfg.Node
}

// Pass makes one pass; alive has the live nodes. What cannot be read is passed over and
// noted. An error says that the pass did not come to its end.
func (s *Sweeper) Pass(ctx context.Context, alive map[string]bool) error {
	s.takeFresh()
	s.end = core.SweepEnd{}
	if err := s.changes(ctx); err != nil {
		return err
	}
	suspects, stopped := s.suspects(alive), s.stopped()
	asked := map[job.Slot]bool{}
	for _, p := range suspects {
		asked[p.slot] = false
	}
	for _, l := range stopped {
		l.ask(asked)
	}
	s.askFollowers(asked)
	stranded, err := s.list(ctx, asked)
	if err != nil {
		return err
	}
	if err := s.offerSuspects(ctx, suspects, asked); err != nil {
		return err
	}
	if err := s.offerStranded(ctx, stranded, asked); err != nil {
		return err
	}
	if err := s.offerStopped(ctx, stopped, asked); err != nil {
		return err
	}
	return s.followers(ctx, asked)
}

// changes reads what was written to the locks and the ledger since the last pass. The locks
// come first: nearly all slots that they name have ended by the time the ledger is read.
func (s *Sweeper) changes(ctx context.Context) error {
	for c, err := range s.cfg.Locks.Changes(ctx, &s.locksAt) {
		if err != nil {
			return err
		}
		s.lock(c)
	}
	for c, err := range s.cfg.Ledger.Changes(ctx, &s.ledgerAt) {
		if err != nil {
			return err
		}
		s.cfg.Seen.Note(c.Slot, c.Revision, c.Time)
		delete(s.unreadable, c.Slot)
		if c.Gone || c.State.Final() {
			delete(s.open, c.Slot)
			s.ended(c.Slot)
		} else {
			s.open[c.Slot] = c
		}
		delete(s.handed, c.Slot)
		s.chain(c)
	}
	return nil
}
