//go:build unix

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/lab/proxy"
)

// cluster is three nats-server processes that sync every write. Clients reach each of them through a wire,
// and know no other address.
type cluster struct {
	*site
	members []*member
}

type member struct {
	name, config string
	wire         *proxy.Proxy
	process      *process
}

// newClusterSite is a site with a cluster that is ready.
func newClusterSite(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{site: newSite(t)}
	ports := natstest.FreePorts(t, 6)
	listen, routes := ports[:3], ports[3:]
	var urls, peers []string
	for _, port := range routes {
		peers = append(peers, fmt.Sprintf("nats-route://127.0.0.1:%d", port))
	}
	for i := range 3 {
		m := &member{name: fmt.Sprintf("n%d", i+1)}
		m.wire = natstest.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", listen[i]))
		m.config = c.write(m.name+".conf", fmt.Sprintf(`
server_name: %s
listen: "127.0.0.1:%d"
client_advertise: %q
jetstream: {store_dir: %q, sync_interval: always}
cluster: {name: cronce, listen: "127.0.0.1:%d", routes: [%s]}
`, m.name, listen[i], m.wire.Address(), c.path("store-"+m.name), routes[i], strings.Join(peers, ", ")))
		c.members = append(c.members, m)
		urls = append(urls, m.wire.URL())
	}
	c.url = strings.Join(urls, ",")
	for _, m := range c.members {
		c.startMember(m)
	}
	c.connect()
	c.ready()
	return c
}

func (c *cluster) startMember(m *member) {
	c.t.Helper()
	m.process = start(c.t, m.name, c.env(), nil, program(c.t, natsServer), "-c", m.config)
	m.process.says("Server is ready")
}

// restart ends a member. When the others have gone on without it, restart starts it again on the same files
// and ports.
func (c *cluster) restart(m *member, end func(*process), meanwhile func()) {
	c.t.Helper()
	end(m.process)
	meanwhile()
	c.startMember(m)
	c.current()
}

// ready waits until the cluster can create a stream with three replicas.
func (c *cluster) ready() {
	c.t.Helper()
	eventually(c.t, "a cluster of three", func() bool {
		_, err := c.js.CreateStream(c.t.Context(), jetstream.StreamConfig{Name: "ready", Subjects: []string{"ready"}, Replicas: 3})
		return err == nil
	})
	if err := c.js.DeleteStream(c.t.Context(), "ready"); err != nil {
		c.t.Fatal(err)
	}
}

// current waits until no replica of any stream of the namespace lags behind.
func (c *cluster) current() {
	c.t.Helper()
	eventually(c.t, "replicas that are up to date", func() bool {
		n := 0
		for info := range c.js.ListStreams(c.t.Context()).Info() {
			n++
			if info.Cluster == nil || info.Cluster.Leader == "" || len(info.Cluster.Replicas) != 2 ||
				slices.ContainsFunc(info.Cluster.Replicas, func(p *jetstream.PeerInfo) bool { return !p.Current || p.Offline }) {
				return false
			}
		}
		return n > 0
	})
}

// leader returns the member that leads a stream.
func (c *cluster) leader(stream string) (leader *member) {
	c.t.Helper()
	eventually(c.t, "a leader of stream "+stream, func() bool {
		s, err := c.js.Stream(c.t.Context(), stream)
		if err != nil || s.CachedInfo().Cluster == nil {
			return false
		}
		i := slices.IndexFunc(c.members, func(m *member) bool { return m.name == s.CachedInfo().Cluster.Leader })
		if i >= 0 {
			leader = c.members[i]
		}
		return i >= 0
	})
	return leader
}
