package replica

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

const (
	// vouchFor is how long a node counts as a producer before its record is read again. If a
	// node does not count as a producer, its record is read again after vouchAgain.
	vouchFor   = time.Minute
	vouchAgain = 2 * time.Second

	// vouchTimeout bounds one read. maxVouched bounds the remembered names, because any
	// login can invent names.
	vouchTimeout = 20 * time.Second
	maxVouched   = 4096
)

// vouches reads the records of nodes to find out which of them are live producers: any login can
// publish an announcement in the name of any producer. It is safe for concurrent use.
type vouches struct {
	read func(ctx context.Context, name string) (exchange.NodeEvent, error)
	live func(exchange.NodeEvent) bool
	log  *slog.Logger

	queue chan string // names whose records are to be read
	mu    sync.Mutex
	known map[string]vouch
}

// vouch is the result of the last read of a node's record, at readAt. readAt is zero before the
// first read.
type vouch struct {
	started  time.Time
	produces bool
	readAt   time.Time
	reading  bool // a read is queued or under way
}

func (r *Replica) newVouches() *vouches {
	lease := r.cfg.Store.Settings().Lease
	live := func(e exchange.NodeEvent) bool {
		silent := r.clock.Now().Sub(e.Time) - r.clock.Error()
		return e.Node.State == exchange.NodeAlive && e.Node.Producer && silent < max(lease, e.Node.Lease)
	}
	read := func(ctx context.Context, name string) (exchange.NodeEvent, error) {
		e, err := r.cfg.Store.Nodes().Read(ctx, name)
		if err == nil {
			r.zones.note(e)
		}
		return e, err
	}
	return newVouches(read, live, r.log)
}

func newVouches(read func(context.Context, string) (exchange.NodeEvent, error), live func(exchange.NodeEvent) bool, log *slog.Logger) *vouches {
	return &vouches{read: read, live: live, log: log, queue: make(chan string, 64), known: map[string]vouch{}}
}

// get reports whether the node is known to produce, and when it started. It does not block: run reads
// the record if it was not read lately.
func (v *vouches) get(name string) (started time.Time, produces bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := v.known[name]
	again := vouchAgain
	if k.produces {
		again = vouchFor
	}
	if !k.reading && (k.readAt.IsZero() || time.Since(k.readAt) > again) {
		select {
		case v.queue <- name:
			k.reading = true
			v.put(name, k)
		default: // the next announcement tries again
		}
	}
	return k.started, k.produces
}

// put stores a result. v.mu is held.
func (v *vouches) put(name string, k vouch) {
	if len(v.known) >= maxVouched {
		clear(v.known)
	}
	v.known[name] = k
}

// run reads the requested records until ctx ends.
func (v *vouches) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case name := <-v.queue:
			reading, cancel := context.WithTimeout(ctx, vouchTimeout)
			e, err := v.read(reading, name)
			cancel()
			v.note(name, e, err)
		}
	}
}

// note handles the result of a read. A read without an answer changes nothing.
func (v *vouches) note(name string, e exchange.NodeEvent, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := v.known[name]
	changed := k.readAt.IsZero() || k.produces
	k.reading = false
	if err == nil || errors.Is(err, job.ErrNotFound) || exchange.IsUnreadable(err) {
		k.readAt, k.produces, k.started = time.Now(), err == nil && e.Name == name && v.live(e), e.Node.Started
		if !k.produces && changed {
			v.log.Warn("announcements ignored: the announcing node has no live record as a producer", "node", name,
				"likely", "it is starting or was ended; if this is said for more than a minute, a fleet of the same namespace is in a connected JetStream domain: name another one with --namespace")
		}
	}
	v.put(name, k)
}
