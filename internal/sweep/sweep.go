package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Ledger is what the sweep reads of the ledger. kv.Ledger satisfies it.
type Ledger interface {
	// Changes passes over what was written since the cursor was there: of each slot
	// the last write.
	Changes(ctx context.Context, at *kv.Cursor) iter.Seq2[kv.Change, error]
	Read(ctx context.Context, s job.Slot) (job.Record, uint64, error)
}

// Locks is what the sweep reads of the jobs' locks. kv.Locks satisfies it.
type Locks interface {
	// Changes is as that of Ledger: of each job the last write.
	Changes(ctx context.Context, at *kv.Cursor) iter.Seq2[kv.LockChange, error]
}

// Messages lists the slots that have a message. kv.Slots and kv.Timers satisfy it.
type Messages interface {
	Waiting(ctx context.Context, f kv.WaitingFilter) iter.Seq2[kv.WaitingSlot, error]
}

// Slots is the stream of slots. kv.Slots satisfies it.
type Slots interface {
	Messages
	Publish(queue string, m job.Message, payload []byte) (wait func(context.Context) (duplicate bool, err error), err error)
}

// Nodes lists the nodes. kv.Nodes satisfies it.
type Nodes interface {
	List(ctx context.Context) ([]job.NodeEvent, error)
}

// Registry reads definitions. kv.Jobs satisfies it.
type Registry interface {
	Read(ctx context.Context, name string) (job.Entry, uint64, error)
}

// Config of a Sweeper. All fields are required but the last.
type Config struct {
	// Node is the incarnation that sweeps.
	Node string

	Ledger   Ledger
	Locks    Locks
	Slots    Slots
	Timers   Messages
	Nodes    Nodes
	Registry Registry

	// After returns the jobs that come after one, as far as is known, without asking
	// anybody. Default: none.
	After func(name string) []job.Entry

	// Now is the broker's clock.
	Now func() time.Time

	Lease, Horizon time.Duration

	// Offered is told of each slot that was offered again. It must not block.
	// Default: nobody is told.
	Offered func(job.Slot)

	// Logger: default none.
	Logger *slog.Logger
}

const (
	// every is how often a pass is made; patience is how long after it should have
	// moved a slot may stand still before it is a suspect. Together they are under the
	// two minutes that a lost slot may take, also if who sweeps is killed just before
	// it would have: for a lease nobody else takes its turn.
	every    = 30 * time.Second
	patience = 30 * time.Second

	// limit bounds one pass.
	limit = time.Minute

	// maxHanded bounds the slots that are remembered without a record, and
	// remembered is how long a node that does not sweep keeps them, in case that
	// it has to begin.
	maxHanded  = 100_000
	remembered = 10 * time.Minute

	// leastFresh and mostFresh are how many slots that were just handed out take a
	// piece of memory together.
	leastFresh, mostFresh = 16, 1024
)

// Sweeper makes the passes of one incarnation. Its methods are safe for concurrent
// use.
type Sweeper struct {
	cfg Config

	// fresh is what was handed out since the last pass: a map would cost the producer
	// a good part of what a publication does, and so would one slice that grows. told
	// is how many there are.
	mu    sync.Mutex
	fresh [][]handed
	told  int

	// Only the goroutine of Run uses these.
	handed            map[job.Slot]handed
	ledgerAt, locksAt kv.Cursor
	open              map[job.Slot]kv.Change
	locks             map[string]kv.LockChange // in which there is anybody
	stays             map[job.Slot]stay
	remains           map[remains]bool // stranded messages of slots that have ended
	// follow are the slots that are to follow from others.
	follow map[job.Slot]follower
}

// handed is a slot that the producer of this node handed out, and that has no
// record yet as far as is known.
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
	if cfg.After == nil {
		cfg.After = func(string) []job.Entry { return nil }
	}
	s := &Sweeper{cfg: cfg, handed: map[job.Slot]handed{}}
	s.rest()
	return s
}

// Handed tells of a slot that this node's producer has taken care of: it is to be
// in the stream. It does not block.
func (s *Sweeper) Handed(queue string, m job.Message) {
	if m.Missed > 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told == maxHanded {
		return
	}
	last := len(s.fresh) - 1
	if last < 0 || len(s.fresh[last]) == cap(s.fresh[last]) {
		s.fresh = append(s.fresh, make([]handed, 0, min(max(s.told, leastFresh), mostFresh)))
		last++
	}
	s.fresh[last] = append(s.fresh[last], handed{m.Slot, queue, m.Due, m.JobRevision, m.CaughtUp})
	s.told++
}

// takeFresh takes up what was handed out since the last pass.
func (s *Sweeper) takeFresh() {
	s.mu.Lock()
	fresh := s.fresh
	s.fresh, s.told = nil, 0
	s.mu.Unlock()
	for _, some := range fresh {
		for _, h := range some[:min(len(some), maxHanded-len(s.handed))] {
			s.handed[h.slot] = h
		}
	}
}

// Run makes a pass twice a minute, while this node is the one that does, until ctx
// ends. A pass that fails is made again at the next turn.
func (s *Sweeper) Run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := s.turn(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Logger.Warn("the sweep for lost slots did not come to its end; it is made again in half a minute", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// turn makes a pass if it is this node's to make.
func (s *Sweeper) turn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	nodes, err := s.cfg.Nodes.List(ctx)
	if err != nil {
		return err
	}
	alive, first := s.look(nodes)
	if !first {
		s.rest()
		return nil
	}
	return s.Pass(ctx, alive)
}

// rest forgets what only who sweeps needs.
func (s *Sweeper) rest() {
	s.ledgerAt, s.open, s.follow = kv.Cursor{}, map[job.Slot]kv.Change{}, map[job.Slot]follower{}
	s.locksAt, s.locks, s.stays = kv.Cursor{}, map[string]kv.LockChange{}, map[job.Slot]stay{}
	s.remains = map[remains]bool{}
	s.takeFresh()
	now := s.cfg.Now()
	for slot, h := range s.handed {
		if now.Sub(h.due) > remembered {
			delete(s.handed, slot)
		}
	}
}

// look says which nodes are alive, and whether this one is the oldest of the
// producers among them: it remembers most. The broker's timestamps tell how long a node has been
// silent; that is good enough for a guess, and no more is needed here.
func (s *Sweeper) look(nodes []job.NodeEvent) (alive map[string]bool, first bool) {
	alive = map[string]bool{}
	now := s.cfg.Now()
	var oldest job.Node
	for _, n := range nodes {
		lease := max(s.cfg.Lease, n.Node.Lease)
		if n.Err == nil && (n.Node.State != job.NodeAlive || now.Sub(n.Time) >= lease) {
			continue
		}
		alive[n.Name] = true
		if n.Node.Producer && (oldest.Name == "" || cmp.Or(n.Node.Began().Compare(oldest.Began()), cmp.Compare(n.Name, oldest.Name)) < 0) {
			oldest = n.Node
		}
	}
	return alive, oldest.Name == s.cfg.Node
}

// Pass looks once, and offers what it finds lost. alive has the nodes that are.
func (s *Sweeper) Pass(ctx context.Context, alive map[string]bool) error {
	s.takeFresh()
	if err := s.changes(ctx); err != nil {
		return err
	}
	for where, suspects := range s.suspects(alive) {
		if err := s.search(ctx, where, suspects); err != nil {
			return err
		}
	}
	if err := s.stranded(ctx); err != nil {
		return err
	}
	if err := s.abandoned(ctx); err != nil {
		return err
	}
	return s.followers(ctx)
}

// changes takes in what was written to the ledger and the locks since the last pass. The
// locks first: nearly all that are named there have ended by then.
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

// where is where a job's messages stand.
type where struct{ queue, job string }

// suspect is a slot that should have moved.
type suspect struct {
	slot   job.Slot
	handed handed // of one without a record
}

// suspects are grouped by job: their messages are looked for together. The queue
// of one with a record is not known here, so all are looked through.
func (s *Sweeper) suspects(alive map[string]bool) map[where][]suspect {
	found := map[where][]suspect{}
	now := s.cfg.Now()
	for slot, c := range s.open {
		moves := c.RetryAt
		switch {
		case c.State == job.Running && alive[c.Node]:
			continue
		case c.State == job.Running:
			moves = c.Time.Add(s.cfg.Lease)
		case moves.IsZero():
			moves = c.Time
		}
		if now.Sub(moves) > patience {
			found[where{"", slot.Job}] = append(found[where{"", slot.Job}], suspect{slot: slot})
		}
	}
	for slot, h := range s.handed {
		switch age := now.Sub(h.due); {
		case age > s.cfg.Horizon:
			delete(s.handed, slot)
		case age > patience:
			found[where{h.queue, slot.Job}] = append(found[where{h.queue, slot.Job}], suspect{slot, h})
		}
	}
	return found
}

// search looks for the messages of a job's suspects, and offers those that have
// none.
func (s *Sweeper) search(ctx context.Context, at where, suspects []suspect) error {
	waiting, err := s.waiting(ctx, kv.WaitingFilter{Queue: at.queue, Job: at.job, Fired: true})
	if err != nil {
		return err
	}
	suspects = slices.DeleteFunc(suspects, func(p suspect) bool { return waiting[p.slot] })
	for _, p := range suspects {
		if err := s.offer(ctx, p); err != nil {
			return fmt.Errorf("offer %s again: %w", p.slot, err)
		}
	}
	return nil
}

// waiting are the slots that have a message which somebody will get, and those of
// which a part has one.
func (s *Sweeper) waiting(ctx context.Context, f kv.WaitingFilter) (map[job.Slot]bool, error) {
	waiting := map[job.Slot]bool{}
	for _, messages := range []Messages{s.cfg.Slots, s.cfg.Timers} {
		for w, err := range messages.Waiting(ctx, f) {
			if err != nil && !errors.Is(err, job.ErrInvalid) {
				return nil, err
			}
			if err == nil && !w.Stranded {
				waiting[w.Slot], waiting[w.Slot.Whole()] = true, true
			}
		}
	}
	return waiting, nil
}

// offer gives a suspect a message, unless the ledger's leader says that it needs
// none.
func (s *Sweeper) offer(ctx context.Context, p suspect) error {
	rec, revision, err := s.cfg.Ledger.Read(ctx, p.slot)
	recorded := err == nil
	switch {
	case errors.Is(err, job.ErrNotFound) && p.handed.queue != "":
		revision = 0
	case errors.Is(err, job.ErrNotFound):
		delete(s.open, p.slot)
		return nil
	case err != nil:
		return err
	case p.handed.queue != "":
		delete(s.handed, p.slot)
		return nil
	case rec.State.Final() || revision != s.open[p.slot].Revision:
		return nil // it has moved; the next pass sees how
	case rec.Shards > 0:
		if done, err := s.offerParts(ctx, rec, revision); err != nil || !done {
			return err
		}
	}
	if recorded {
		return s.publish(ctx, rec, revision)
	}
	h := p.handed
	return s.send(ctx, h.queue, job.Message{Slot: h.slot, JobRevision: h.revision, Due: h.due, CaughtUp: h.caughtUp}, job.Record{Slot: p.slot}, 0)
}

// publish offers the slot of a record that stands at revision.
func (s *Sweeper) publish(ctx context.Context, rec job.Record, revision uint64) error {
	return s.send(ctx, rec.Queue, job.Message{Slot: rec.Slot, JobRevision: rec.JobRevision, Due: rec.Due}, rec, revision)
}

func (s *Sweeper) send(ctx context.Context, queue string, m job.Message, rec job.Record, revision uint64) error {
	payload, err := s.payload(ctx, rec)
	if err != nil {
		return err
	}
	return s.sendAs(ctx, queue, m, payload, rec.State, offerOf(revision))
}

// sendAs publishes the slot's message as the n-th offer.
func (s *Sweeper) sendAs(ctx context.Context, queue string, m job.Message, payload []byte, state job.State, n int) error {
	m.Node, m.Offer = s.cfg.Node, n
	wait, err := s.cfg.Slots.Publish(queue, m, payload)
	if err == nil {
		_, err = wait(ctx)
	}
	if err == nil {
		s.cfg.Offered(m.Slot)
		what := "a slot had lost its message and is offered again"
		switch {
		case m.Refused != "":
			what = "a triggered run had lost its message and payload before its first claim, and is ended"
		case state.Final():
			what = "what follows from a slot is not there: the slot is offered again, to see to it"
		}
		s.cfg.Logger.Warn(what, "slot", m.Slot.ID(), "state", state)
	}
	return err
}

// offerParts offers those parts of a whole slot that have no outcome, and reports
// whether there are none: then the whole is offered, to be concluded.
func (s *Sweeper) offerParts(ctx context.Context, whole job.Record, revision uint64) (done bool, err error) {
	done = true
	for i := range whole.Shards {
		part := whole.Slot.Part(i+1, whole.Shards)
		rec, at, err := s.cfg.Ledger.Read(ctx, part)
		switch {
		case errors.Is(err, job.ErrNotFound):
			at = revision
			rec = job.Record{Slot: part, Queue: whole.Queue, JobRevision: whole.JobRevision, Due: whole.Due, Payload: whole.Payload}
		case err != nil:
			return false, err
		case rec.State.Final() || rec.State == job.Retrying && rec.RetryAt.After(s.cfg.Now()):
			continue
		}
		done = false
		if err := s.publish(ctx, rec, at); err != nil {
			return false, err
		}
	}
	return done, nil
}

// offerOf numbers the offer of a slot whose record stands at revision: the same for
// all who find it so, and none is verify's, which is 1.
func offerOf(revision uint64) int { return int(revision) + 2 }

// payload is what the record's slot's message carried: a triggered run's own, else the
// definition's as it is now.
func (s *Sweeper) payload(ctx context.Context, rec job.Record) ([]byte, error) {
	if rec.Slot.Token != "" {
		return rec.Payload, nil
	}
	entry, _, err := s.cfg.Registry.Read(ctx, rec.Slot.Job)
	switch {
	case errors.Is(err, job.ErrNotFound), errors.Is(err, job.ErrInvalid), errors.Is(err, job.ErrVersion):
		return nil, nil // the worker decides what becomes of it
	case err != nil:
		return nil, err
	}
	return entry.Job.Payload, nil
}
