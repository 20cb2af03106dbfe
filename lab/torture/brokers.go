package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/lab/proxy"
	"github.com/cronce-io/cronce/lab/torture/plan"
)

// ServerSpec configures a server that torture starts.
type ServerSpec struct {
	// Name stays the same when the server is started again: the cluster knows it by its name.
	Name   string `json:"name"`
	Listen string `json:"listen"`
	Store  string `json:"store"`

	// MaxPayload is the server's max_payload.
	MaxPayload int `json:"max_payload"`

	// Route is the address on which the server listens for the other servers of its cluster. Routes
	// are these addresses of all servers. If both are empty, there is no cluster.
	Route  string   `json:"route,omitempty"`
	Routes []string `json:"routes,omitempty"`
}

// broker is a server that torture starts, over all its lives. During the torture only the lane of
// the servers uses it.
type broker struct {
	spec ServerSpec
	life int
	now  *process
}

func (t *torture) startBrokers() error {
	n := t.cfg.Servers
	ports, err := proxy.FreePorts(2 * n)
	if err != nil {
		return err
	}
	addresses := codec.Map(ports, func(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) })
	listens, routes := addresses[:n], addresses[n:]
	for i := range n {
		b := &broker{spec: ServerSpec{Name: fmt.Sprintf("s%d", i+1), Listen: listens[i], Store: filepath.Join(t.cfg.Dir, fmt.Sprintf("s%d", i+1)), MaxPayload: t.cfg.MaxPayload()}}
		if n > 1 {
			b.spec.Route, b.spec.Routes = routes[i], routes
		}
		t.brokers = append(t.brokers, b)
		if err := t.startBroker(b); err != nil {
			return err
		}
	}
	urls := codec.Map(t.brokers, func(b *broker) string { return "nats://" + b.spec.Listen })
	t.cfg.Server = strings.Join(urls, ",")
	return nil
}

func (t *torture) startBroker(b *broker) error {
	b.life++
	spec, err := json.Marshal(b.spec)
	if err != nil {
		return err
	}
	b.now, err = t.start(fmt.Sprintf("%s.%d", b.spec.Name, b.life), ServerRole, string(spec))
	return err
}

// killBroker kills a server and starts it again. It returns when the server has caught up with
// the others: then every acknowledged write is on two of three servers again.
func (t *torture) killBroker(ctx context.Context, f plan.Fault) {
	b := t.brokers[f.Target]
	t.count(string(plan.Broker))
	b.now.kill()
	wire.Wait(ctx, f.For)
	if err := t.startBroker(b); err != nil {
		t.fail(err)
		return
	}
	const patience = time.Minute
	for began := time.Now(); ; {
		err := t.caughtUp(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case !b.now.running():
			t.fail(fmt.Errorf("server %s ended by itself: %s: %s", b.spec.Name, b.now.cmd.ProcessState, b.now.logTail()))
			return
		case time.Since(began) > patience:
			t.fail(fmt.Errorf("the servers have not caught up %v after %s was started again: %w", patience, b.spec.Name, err))
			return
		}
		wire.Wait(ctx, 200*time.Millisecond)
	}
}

// caughtUp returns nil if every stream has a leader, and no replica is offline or behind.
func (t *torture) caughtUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for _, stream := range layout.Streams(t.cfg.Namespace) {
		s, err := t.js.Stream(ctx, stream)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look at stream %s: %w", stream, err)
		}
		c := s.CachedInfo().Cluster
		if c == nil || t.cfg.Servers < 2 {
			continue
		}
		if c.Leader == "" || len(c.Replicas) < t.cfg.Servers-1 {
			return fmt.Errorf("stream %s has no leader, or too few replicas", stream)
		}
		for _, r := range c.Replicas {
			if r.Offline || !r.Current {
				return fmt.Errorf("stream %s on server %s is behind", stream, r.Name)
			}
		}
	}
	return nil
}
