package replica

import (
	"context"
	"errors"
	"time"

	"github.com/cronce-io/cronce/consumer"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// Observer receives measurements: see cronce.Observer.
type Observer interface {
	consumer.Observer
	Event(job.Event)
	Ledger(request string, took time.Duration, failed error)
	HeartbeatFailed()
	LeaseLost()
	Offered()
}

// noObserver ignores everything.
type noObserver struct{}

func (noObserver) Started(string, time.Duration, bool) {}
func (noObserver) Returned(string, time.Duration)      {}
func (noObserver) Parked(string, int)                  {}
func (noObserver) Event(job.Event)                     {}
func (noObserver) Ledger(string, time.Duration, error) {}
func (noObserver) HeartbeatFailed()                    {}
func (noObserver) LeaseLost()                          {}
func (noObserver) Offered()                            {}

// ledger is the ledger of the consumers. It measures requests, and remembers the newest
// write of this process.
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
	if exchange.DropsResult(r, l.r.cfg.Store.Room()) {
		// Send must not block, and a log may.
		go l.r.log.Warn("result dropped: with it the record is larger than the server's max_payload", "slot", slot.ID(), "bytes", len(r.Result))
	}
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

// failure returns err, or nil if err is an answer.
func failure(err error) error {
	if errors.Is(err, job.ErrConflict) || errors.Is(err, job.ErrNotFound) {
		return nil
	}
	return err
}

func (r *Replica) ledger() consumer.Ledger { return ledger{r.cfg.Store.Ledger(), r} }
