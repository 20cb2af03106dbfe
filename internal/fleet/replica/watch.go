package replica

import (
	"context"
	"sync"

	"github.com/cronce-io/cronce/internal/core/exchange"
)

// onOff is a switch with notification.
type onOff struct {
	mu      sync.Mutex
	on      bool
	changed chan struct{}
}

func newOnOff() *onOff { return &onOff{changed: make(chan struct{})} }

func (s *onOff) set(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on != on {
		s.on = on
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

func (s *onOff) get() (on bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.on, s.changed
}

// watchNodes watches the heartbeats of the fleet while watches is on, until ctx ends or the
// watch fails.
func (r *Replica) watchNodes(ctx context.Context) error {
	for {
		on, changed := r.watches.get()
		var err error
		if on {
			watching, stop := context.WithCancel(ctx)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				err = r.peers.Watch(watching, r.cfg.Store.Nodes(), func(e exchange.NodeEvent) {
					r.beats.stamped(e)
					r.zones.note(e)
				})
			}()
			select {
			case <-changed:
			case <-ended:
			}
			stop()
			<-ended
		} else {
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// stamps reads the broker's timestamps of this node's own heartbeats while no watch delivers
// them.
type stamps struct {
	r    *Replica
	name string
	due  chan struct{}
}

func (r *Replica) newStamps(name string) *stamps {
	return &stamps{r: r, name: name, due: make(chan struct{}, 1)}
}

// acknowledged is called for each heartbeat.
func (s *stamps) acknowledged() {
	if on, _ := s.r.watches.get(); !on {
		select {
		case s.due <- struct{}{}:
		default:
		}
	}
}

func (s *stamps) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.due:
		}
		// If a read fails, the next heartbeat gives another sample.
		if e, err := s.r.cfg.Store.Nodes().ReadEvent(ctx, s.name); err == nil {
			s.r.beats.stamped(e)
		}
	}
}
