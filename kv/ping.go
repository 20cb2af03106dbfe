package kv

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/wire"
)

// pingWait is how long PingNodes collects answers.
const pingWait = 400 * time.Millisecond

// PingNodes asks the nodes of the namespace to answer as a NATS service, and returns the names of those
// that do so within a moment, in no order. It finds nodes in connected JetStream domains too, whose
// records are not in the nodes bucket. If the login may not ask, it finds none.
func (s *Store) PingNodes(ctx context.Context) ([]string, error) {
	subject := "$SRV.PING." + layout.ServiceName(s.Namespace)
	if !s.MayPublish(subject) {
		return nil, nil
	}
	var mu sync.Mutex
	var names []string
	reply := layout.ReplyPrefix(s.Namespace) + "." + rand.Text()
	stop, err := s.Listen(reply, func(m *nats.Msg) {
		var pong struct {
			Metadata struct{ Namespace, Node string } `json:"metadata"`
		}
		if json.Unmarshal(m.Data, &pong) != nil || pong.Metadata.Namespace != s.Namespace || pong.Metadata.Node == "" {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if !slices.Contains(names, pong.Metadata.Node) {
			names = append(names, pong.Metadata.Node)
		}
	})
	if err != nil {
		return nil, err
	}
	defer stop()
	s.Transport.Publish(subject, reply, nil, time.Now().Round(0).Add(pingWait))
	if !wire.Wait(ctx, pingWait) {
		return nil, context.Cause(ctx)
	}
	mu.Lock()
	defer mu.Unlock()
	return names, nil
}
