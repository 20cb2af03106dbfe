package kv

import (
	"context"

	"github.com/cronce-io/cronce/internal/core"
)

// Watermark stores the time up to which every slot has been published, under one key.
// Its methods are safe for concurrent use.
type Watermark struct{ b bucket }

const watermarkKey = "watermark"

// Read returns the watermark and its revision from the stream's leader. Its errors are
// those of Ledger.Read.
func (w *Watermark) Read(ctx context.Context) (core.Watermark, uint64, error) {
	e, err := w.b.read(ctx, watermarkKey)
	if err != nil {
		return core.Watermark{}, e.revision, err
	}
	mark, err := core.DecodeWatermark(e.data)
	return mark, e.revision, err
}

// Write stores the watermark if revision is the last one of the key; 0 creates it. The
// caller ensures that the watermark only moves forward. The errors are those of
// Ledger.Write.
func (w *Watermark) Write(ctx context.Context, mark core.Watermark, revision uint64) (uint64, error) {
	return w.b.encode(ctx, watermarkKey, mark.Nonce, mark, revision)
}
