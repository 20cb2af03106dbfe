package replica

import (
	"context"
	"sync"
)

// group runs goroutines that end together: the first error ends them all.
type group struct {
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	once sync.Once
	err  error
}

func newGroup(parent context.Context) *group {
	ctx, stop := context.WithCancel(parent)
	return &group{ctx: ctx, stop: stop}
}

func (g *group) run(f func(ctx context.Context) error) {
	g.wg.Go(func() {
		if err := f(g.ctx); err != nil {
			g.once.Do(func() { g.err = err })
			g.stop()
		}
	})
}

// wait returns the first error when all have ended.
func (g *group) wait() error {
	g.wg.Wait()
	g.stop()
	return g.err
}
