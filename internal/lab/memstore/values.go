package memstore

import (
	"context"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
)

// Watermark is a kv.Watermark in memory, with the same methods.
type Watermark struct{ *Bucket }

func (w *Watermark) Read(ctx context.Context) (exchange.Watermark, uint64, error) {
	return get(ctx, w.Bucket, watermarkKey, exchange.DecodeWatermark)
}

func (w *Watermark) Write(ctx context.Context, mark exchange.Watermark, revision uint64) (uint64, error) {
	return w.put(ctx, watermarkKey, mark.Nonce, mark, revision)
}

// AlertStates is a kv.AlertStates in memory, with the same methods.
type AlertStates struct{ *Bucket }

func (a *AlertStates) Read(ctx context.Context, name string) (exchange.AlertState, uint64, error) {
	return get(ctx, a.Bucket, "alert."+name, exchange.DecodeAlertState)
}

func (a *AlertStates) Write(ctx context.Context, state exchange.AlertState, revision uint64) (uint64, error) {
	return a.put(ctx, "alert."+state.Job, state.Nonce, state, revision)
}

// Locks is a kv.Locks in memory, with the methods that tests need.
type Locks struct{ *Bucket }

func (l *Locks) Read(ctx context.Context, name string) (core.Lock, uint64, error) {
	return get(ctx, l.Bucket, "lock."+name, core.DecodeLock)
}

func (l *Locks) Write(ctx context.Context, lock core.Lock, revision uint64) (uint64, error) {
	return l.put(ctx, "lock."+lock.Job, lock.Nonce, lock, revision)
}

func (l *Locks) Send(ctx context.Context, lock core.Lock, revision uint64, answered func(uint64, error)) {
	go func() { answered(l.Write(ctx, lock, revision)) }()
}
