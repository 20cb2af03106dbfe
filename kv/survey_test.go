package kv_test

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// A server with leaf node connections to others calls itself a cluster of its own name.
func TestSurveyNamesTheClusterOfTheStreams(t *testing.T) {
	t.Parallel()
	hub := natstest.Run(t, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain = "hub", "hub"
		o.LeafNode.Host, o.LeafNode.Port = "127.0.0.1", server.RANDOM_PORT
	})
	leaf := natstest.Run(t, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain = "leaf", "leaf"
		o.LeafNode.Remotes = []*server.RemoteLeafOpts{{URLs: []*url.URL{{Scheme: "nats", Host: hub.LeafAddr()}}}}
	})
	natstest.Eventually(t, "the leaf to reach the hub", func() bool { return leaf.NumLeafNodes() == 1 })
	nc := leaf.Conn()
	if nc.ConnectedClusterName() != "leaf" {
		t.Errorf("the leaf says that its cluster is %q", nc.ConnectedClusterName())
	}
	inHub, err := jetstream.NewWithDomain(nc, "hub")
	if err != nil {
		t.Fatal(err)
	}
	cluster := natstest.RunCluster(t)
	for name, tc := range map[string]struct {
		js   jetstream.JetStream
		want string
	}{
		"a leaf node":             {leaf.JetStream(), ""},
		"another domain":          {inHub, ""},
		"one server of a cluster": {cluster.JetStream(), cluster.Servers[0].ClusterName()},
	} {
		t.Run(name, func(t *testing.T) {
			o := kv.Options{Want: job.Settings{Replicas: 1}}
			open(t, tc.js, o)
			_, v, err := kv.Examine(t.Context(), tc.js, kv.Options{})
			if err != nil || v.Cluster != tc.want {
				t.Errorf("cluster %q, want %q: %v", v.Cluster, tc.want, err)
			}
		})
	}
}

// The hub answers too, with what the leaf's connection may do. Sometimes it answers first.
func TestPermissionsOfALoginAtALeafAreNotThoseOfTheLeaf(t *testing.T) {
	t.Parallel()
	hub := natstest.Run(t, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain = "hub", "hub"
		o.LeafNode.Host, o.LeafNode.Port = "127.0.0.1", server.RANDOM_PORT
	})
	leaf := natstest.Run(t, func(o *server.Options) {
		o.ServerName, o.JetStream = "leaf", false
		o.LeafNode.Remotes = []*server.RemoteLeafOpts{{URLs: []*url.URL{{Scheme: "nats", Host: hub.LeafAddr()}}}}
	})
	natstest.Eventually(t, "the leaf to reach the hub", func() bool { return leaf.NumLeafNodes() == 1 })
	inHub, err := jetstream.NewWithDomain(leaf.Conn(), "hub")
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, inHub, kv.Options{})
	var group errgroup.Group
	for range 32 {
		group.Go(func() error {
			for range 100 {
				login, err := s.Permissions(t.Context())
				if err != nil {
					return err
				}
				if !login.MayPublish("$JS.hub.API.INFO") {
					return errors.New("the login may do what the leaf may do")
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// The connected server has no system account, so it does not answer. A caller may have no deadline.
func TestPermissionsOfALoginAreUnknownIfOnlyTheHubAnswers(t *testing.T) {
	t.Parallel()
	hub := natstest.Run(t, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain = "hub", "hub"
		o.LeafNode.Host, o.LeafNode.Port = "127.0.0.1", server.RANDOM_PORT
	})
	leaf := natstest.Run(t, func(o *server.Options) {
		o.ServerName, o.JetStream, o.NoSystemAccount = "leaf", false, true
		o.LeafNode.Remotes = []*server.RemoteLeafOpts{{URLs: []*url.URL{{Scheme: "nats", Host: hub.LeafAddr()}}}}
	})
	natstest.Eventually(t, "the leaf to reach the hub", func() bool { return leaf.NumLeafNodes() == 1 })
	inHub, err := jetstream.NewWithDomain(leaf.Conn(), "hub")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, inHub, kv.Options{}).Permissions(within(t, natstest.Patience)); !errors.Is(err, job.ErrUnknown) || !strings.Contains(err.Error(), "behind the connected one") {
		t.Errorf("got %v, want that they are unknown", err)
	}
}

// An operator mirrors the streams to another cluster for reports. For the mirror of a work queue, the
// server makes a durable consumer of that stream.
func TestSurveyTakesNoConsumerOfAMirrorForAQueue(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	if _, err := space.Setup(t.Context(), js, kv.Options{Queues: []string{"default"}}); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]jetstream.StreamConfig{
		"mirror": {Mirror: &jetstream.StreamSource{Name: "cronce_slots"}},
		"source": {Sources: []*jetstream.StreamSource{{Name: "cronce_slots"}, {Name: "cronce_timers"}}},
	} {
		cfg.Name = name
		if _, err := js.CreateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	natstest.Eventually(t, "the consumers of the mirror and of the source to work", func() bool {
		inactive := func(s *jetstream.StreamSourceInfo) bool { return s.Active < 0 }
		mirror, err1 := js.Stream(t.Context(), "mirror")
		source, err2 := js.Stream(t.Context(), "source")
		return errors.Join(err1, err2) == nil && !inactive(mirror.CachedInfo().Mirror) && !slices.ContainsFunc(source.CachedInfo().Sources, inactive)
	})
	if _, v, err := kv.Examine(t.Context(), js, kv.Options{}); err != nil || len(v.Differences) != 0 || len(v.Queues) != 1 || v.Queues[0].Name != "default" {
		t.Errorf("%+v, %+v, %v", v.Queues, v.Differences, err)
	}
	if changes, err := space.Setup(t.Context(), js, kv.Options{Queues: []string{"default"}}); err != nil || len(changes) != 0 {
		t.Errorf("setup: %q, %v", changes, err)
	}
}
