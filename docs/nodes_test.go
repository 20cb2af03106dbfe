package docs_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/fleet/node"
	"github.com/cronce-io/cronce/job"
)

// fenceCase is a challenger that asks whether a node is dead, whose key it has
// seen stand still for Still.
type fenceCase struct {
	Name  string    `json:"name"`
	Node  string    `json:"node"`
	By    string    `json:"by"`
	Lease duration  `json:"lease"`
	Now   time.Time `json:"now"`

	// Value stands under the node's key at Revision, as far as the challenger
	// has seen; absent: nothing, or a marker. Moved: the key has moved on since.
	Value    json.RawMessage `json:"value,omitempty"`
	Revision uint64          `json:"revision"`
	Still    duration        `json:"still"`
	Moved    json.RawMessage `json:"moved,omitempty"`

	Dead    bool            `json:"dead"`
	Wait    duration        `json:"wait,omitempty"`
	At      *uint64         `json:"at,omitempty"`
	Written json.RawMessage `json:"written,omitempty"`
}

func TestFences(t *testing.T) {
	t.Parallel()
	hold(t, "fences.json", answerFence)
}

func answerFence(t *testing.T, c fenceCase) fenceCase {
	t.Helper()
	c.Dead, c.Wait, c.At, c.Written = false, 0, nil, nil
	var clock time.Duration
	key := &nodeKey{t: t, c: &c}
	peers := node.NewPeers(node.PeersConfig{
		Store: key, Lease: time.Duration(c.Lease), Now: func() time.Time { return c.Now }, Boot: func() time.Duration { return clock },
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watching := make(chan struct{})
	go func() { _ = peers.Watch(ctx, watch(watching), nil) }()
	<-watching
	// The first question starts the stopwatch.
	if _, _, err := peers.Dead(t.Context(), c.Node, c.By); err != nil {
		t.Fatal(err)
	}
	clock, key.moved = time.Duration(c.Still), c.Moved != nil
	dead, wait, err := peers.Dead(t.Context(), c.Node, c.By)
	if err != nil {
		t.Fatal(err)
	}
	if c.Dead = dead; !dead {
		c.Wait = duration(wait)
	}
	return c
}

// watch tells nothing; it is closed when it has begun.
type watch chan struct{}

func (w watch) Watch(ctx context.Context, _ func(exchange.NodeEvent)) error {
	close(w)
	<-ctx.Done()
	return nil
}

// nodeKey is the node's key in the bucket.
type nodeKey struct {
	t     *testing.T
	c     *fenceCase
	moved bool
}

func (k *nodeKey) Read(context.Context, string) (exchange.NodeEvent, error) {
	value, revision := k.c.Value, k.c.Revision
	if k.moved {
		value, revision = k.c.Moved, revision+1
	}
	if value == nil {
		return exchange.NodeEvent{Revision: revision}, job.ErrNotFound
	}
	n, err := exchange.DecodeNode(value)
	if err != nil {
		k.t.Fatal(err)
	}
	return exchange.NodeEvent{Name: n.Name, Revision: revision, Node: n}, nil
}

func (k *nodeKey) Write(_ context.Context, n exchange.Node, revision uint64) (uint64, error) {
	k.c.At, k.c.Written = &revision, raw(k.t, n)
	if k.moved {
		return 0, job.ErrConflict
	}
	return revision + 1, nil
}
