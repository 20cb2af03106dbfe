package kv

import (
	"context"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core/exchange"
)

// Watermark stores the time up to which every slot has been published, under one key.
// Its methods are safe for concurrent use.
type Watermark struct{ b wire.Bucket }

// Read returns the watermark and its revision from the stream's leader. Its errors are
// those of Ledger.Read.
func (w *Watermark) Read(ctx context.Context) (exchange.Watermark, uint64, error) {
	return read(ctx, w.b, layout.WatermarkKey, func(e wire.Entry) (exchange.Watermark, error) { return exchange.DecodeWatermark(e.Data) })
}

// Write stores the watermark if revision is the last one of the key; 0 creates it. The
// caller ensures that the watermark only moves forward. The errors are those of
// Ledger.Write.
func (w *Watermark) Write(ctx context.Context, mark exchange.Watermark, revision uint64) (uint64, error) {
	return w.b.WriteValue(ctx, layout.WatermarkKey, mark.Nonce, mark, revision)
}
