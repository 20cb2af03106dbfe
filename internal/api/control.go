package api

import (
	"encoding/json"
	"log/slog"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/control"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/fleet/node"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Control returns a Control for a namespace that acts in the name of who. alive, if not
// nil, is called after each answer of the broker.
func Control(store *kv.Store, who string, now func() time.Time, log *slog.Logger, alive func()) *control.Control {
	peers := node.NewPeers(node.PeersConfig{
		Store: store.Nodes(), Lease: store.Settings().Lease, Now: now, Logger: log,
		Fenced: func(dead, by string) {
			e := job.Event{V: codec.Version, Kind: job.EventFenced, Time: now().UTC(), Node: by, Peer: dead}
			if data, err := json.Marshal(e); err == nil {
				_ = store.Emit(string(e.Kind), core.NoJob, data)
			}
		},
	})
	return control.New(control.Config{
		Jobs: store.Jobs(), Nodes: store.Nodes(), Ledger: store.Ledger(), Slots: store.Slots(), Timers: store.Timers(),
		Watermark: store.Watermark(), Locks: store.Locks(), Fleet: store, Peers: peers, Settings: store.Settings(),
		Now: store.Time, Operator: who, Alive: alive,
	})
}
