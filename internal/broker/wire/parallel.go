package wire

import (
	"context"
	"iter"
	"runtime"
	"slices"
	"sync"
)

// OnAllCores returns f of each entry, in order.
func OnAllCores[T any](found []Entry, f func(Entry) T) []T {
	all := make([]T, len(found))
	var parts sync.WaitGroup
	size := max(1, (len(found)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for part := range slices.Chunk(all, size) {
		entries := found[:len(part)]
		found = found[len(part):]
		parts.Go(func() {
			for i, e := range entries {
				part[i] = f(e)
			}
		})
	}
	parts.Wait()
	return all
}

// Ahead iterates over seq. It computes the next value while the caller uses the current one.
func Ahead[T any](ctx context.Context, seq func(context.Context) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		type item struct {
			value T
			err   error
		}
		ctx, cancel := context.WithCancel(ctx)
		items, enough := make(chan item), make(chan struct{})
		go func() {
			defer close(items)
			for value, err := range seq(ctx) {
				select {
				case items <- item{value, err}:
				case <-enough: // ctx is not checked here: the caller must receive its error
					return
				}
			}
		}()
		defer func() {
			close(enough)
			cancel()
			for range items { // until the goroutine ends
			}
		}()
		for i := range items {
			if !yield(i.value, i.err) {
				return
			}
		}
	}
}
