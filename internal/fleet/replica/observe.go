package replica

import (
	"context"
	"errors"
	"time"

	"github.com/cronce-io/cronce/consumer"
	"github.com/cronce-io/cronce/job"
)

// Observer is told what a replica does, for whoever measures it. Its methods must
// not block, and are called from many goroutines at once. Package metrics has one.
type Observer interface {
	consumer.Observer

	// Follow is called once, before anything else: stats may be asked at any time
	// from then on, and does not wait for the broker.
	Follow(stats func() Stats)

	// Event is told of every event that the replica tells the fleet: outcomes,
	// retries, takeovers, fences, refused completions.
	Event(job.Event)

	// Ledger is told of each request to the ledger, "read" or "write", how long it
	// took to be answered, and why it failed: a conflict, or no record where one
	// was looked for, is an answer and no failure.
	Ledger(request string, took time.Duration, failed error)

	// HeartbeatFailed is told of each heartbeat that was refused or not answered,
	// LeaseLost of each incarnation that ended for it.
	HeartbeatFailed()
	LeaseLost()

	// Offered is told of each slot that the sweep found without a message.
	Offered()
}

// nobody measures nothing.
type nobody struct{}

func (nobody) Started(string, time.Duration, bool) {}
func (nobody) Returned(string, time.Duration)      {}
func (nobody) Parked(string, int)                  {}
func (nobody) Follow(func() Stats)                 {}
func (nobody) Event(job.Event)                     {}
func (nobody) Ledger(string, time.Duration, error) {}
func (nobody) HeartbeatFailed()                    {}
func (nobody) LeaseLost()                          {}
func (nobody) Offered()                            {}

// ledger is the one that consumers work with: it remembers the newest write of this
// process, and measures the requests.
type ledger struct {
	consumer.Ledger
	r *Replica
}

func (l ledger) Read(ctx context.Context, s job.Slot) (job.Record, uint64, error) {
	began := time.Now()
	r, revision, err := l.Ledger.Read(ctx, s)
	l.r.observer.Ledger("read", time.Since(began), failure(err))
	return r, revision, err
}

func (l ledger) Write(ctx context.Context, r job.Record, revision uint64) (uint64, error) {
	began := time.Now()
	revision, err := l.Ledger.Write(ctx, r, revision)
	l.written(r.Slot, began, revision, err)
	return revision, err
}

func (l ledger) Send(ctx context.Context, r job.Record, revision uint64, answered func(uint64, error)) {
	began, slot := time.Now(), r.Slot
	l.Ledger.Send(ctx, r, revision, func(revision uint64, err error) {
		l.written(slot, began, revision, err)
		answered(revision, err)
	})
}

func (l ledger) written(slot job.Slot, began time.Time, revision uint64, err error) {
	l.r.observer.Ledger("write", time.Since(began), failure(err))
	if err == nil {
		l.r.seen.Note(slot, revision, l.r.clock.Now())
	}
}

// failure is err unless it is an answer.
func failure(err error) error {
	if errors.Is(err, job.ErrConflict) || errors.Is(err, job.ErrNotFound) {
		return nil
	}
	return err
}

func (r *Replica) ledger() consumer.Ledger { return ledger{r.cfg.Store.Ledger(), r} }
