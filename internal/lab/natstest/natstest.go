// Package natstest runs real JetStream servers inside a test: one server, or a cluster of
// three, on free loopback ports. Only tests import it.
package natstest

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/proxy"
)

// Server is a nats-server with JetStream. It ends with its test.
type Server struct {
	t    testing.TB
	opts server.Options
	*server.Server
}

// Run starts a server with its files in a folder of the test.
func Run(t testing.TB, edit ...func(*server.Options)) *Server {
	t.Helper()
	o := server.Options{ServerName: "single", Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir()}
	for _, f := range edit {
		f(&o)
	}
	s := start(t, o)
	// Clients find the server at the same port after a restart.
	s.opts.Port = s.port()
	return s
}

func start(t testing.TB, o server.Options) *Server {
	t.Helper()
	o.NoSigs, o.NoLog = true, true
	s := &Server{t: t, opts: o}
	s.Start()
	t.Cleanup(func() { s.Stop() })
	return s
}

// Start starts a stopped server again on the same port and files.
func (s *Server) Start() {
	s.t.Helper()
	o := s.opts
	running, err := server.NewServer(&o)
	if err != nil {
		s.t.Fatal(err)
	}
	running.Start()
	if !running.ReadyForConnections(10 * time.Second) {
		s.t.Fatalf("nats-server %s does not start", o.ServerName)
	}
	s.Server = running
}

// Stop shuts the server down, and returns when it has ended.
func (s *Server) Stop() {
	s.Shutdown()
	s.WaitForShutdown()
}

// Restart stops the server and starts it again on the same port and files.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	s.Start()
}

func (s *Server) port() int { return s.Addr().(*net.TCPAddr).Port }

// Conn opens a connection to the server; see Connect.
func (s *Server) Conn(opts ...nats.Option) *nats.Conn {
	s.t.Helper()
	return Connect(s.t, s.ClientURL(), opts...)
}

// JetStream returns a JetStream client on a new connection.
func (s *Server) JetStream(opts ...nats.Option) jetstream.JetStream {
	s.t.Helper()
	return JetStream(s.t, s.Conn(opts...))
}

// Connect opens a connection that reconnects quickly and without a limit. The end of the test closes
// it.
func Connect(t testing.TB, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	all := append([]nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond), nats.ReconnectJitter(0, 0)}, opts...)
	var nc *nats.Conn
	Eventually(t, "a connection to "+url, func() (done bool) {
		var err error
		nc, err = nats.Connect(url, all...)
		slow, ok := errors.AsType[net.Error](err) // a server on a busy machine may accept, and send its first line seconds later
		if err != nil && !errors.Is(err, nats.ErrTimeout) && !(ok && slow.Timeout()) {
			t.Fatal(err)
		}
		return err == nil
	})
	t.Cleanup(nc.Close)
	return nc
}

// JetStream returns a JetStream client on nc.
func JetStream(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Cluster is a cluster of three servers.
type Cluster struct {
	t       testing.TB
	Servers []*Server
}

// RunCluster starts three servers and waits until they have a leader that knows all of them.
// That takes half a second, so tests should share a cluster and use different namespaces.
func RunCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	dir, routes := t.TempDir(), FreePorts(t, 3)
	for i, route := range routes {
		o := server.Options{
			ServerName: fmt.Sprintf("n%d", i+1),
			// Do not set DontListen: the routes wait for the client listener.
			Host: "127.0.0.1", Port: server.RANDOM_PORT,
			JetStream: true, StoreDir: filepath.Join(dir, strconv.Itoa(i+1)),
			Cluster: server.ClusterOpts{Name: "cronce-test", Host: "127.0.0.1", Port: route},
		}
		for _, port := range routes {
			o.Routes = append(o.Routes, server.RoutesFromStr(fmt.Sprintf("nats-route://127.0.0.1:%d", port))...)
		}
		s := start(t, o)
		s.opts.Port = s.port()
		c.Servers = append(c.Servers, s)
	}
	c.WaitReady()
	return c
}

// WaitReady waits until the cluster has a leader that knows all servers.
func (c *Cluster) WaitReady() {
	c.t.Helper()
	Eventually(c.t, "a meta leader with three peers", func() bool {
		for _, s := range c.Servers {
			if s.Running() && s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == len(c.Servers) {
				return true
			}
		}
		return false
	})
}

// Leader returns the server that leads stream in the global account.
func (c *Cluster) Leader(stream string) *Server {
	c.t.Helper()
	var leader *Server
	Eventually(c.t, "a leader of stream "+stream, func() bool {
		for _, s := range c.Servers {
			if s.Running() && s.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream) {
				leader = s
				return true
			}
		}
		return false
	})
	return leader
}

// URL lists the addresses of all servers.
func (c *Cluster) URL() string {
	var urls string
	for _, s := range c.Servers {
		urls += "," + s.ClientURL()
	}
	return urls[1:]
}

// JetStream returns a JetStream client on a new connection to any of the servers.
func (c *Cluster) JetStream(opts ...nats.Option) jetstream.JetStream {
	c.t.Helper()
	return JetStream(c.t, Connect(c.t, c.URL(), opts...))
}

// FreePorts finds ports for servers whose ports must be known before they start.
func FreePorts(t testing.TB, n int) []int {
	t.Helper()
	ports, err := proxy.FreePorts(n)
	if err != nil {
		t.Fatal(err)
	}
	return ports
}

// FreeAddress returns an address of loopback on which no server listens; see FreePorts.
func FreeAddress(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", FreePorts(t, 1)[0])
}

// WaitMore lets up to n tests of a package run in parallel, even if there are fewer processors: its
// tests mostly wait for leases and clocks. TestMain calls it. The flag -parallel takes precedence.
func WaitMore(n int) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = f.Value.Set(strconv.Itoa(n))
	}
}

// Patience bounds every wait of a test for an event. It is so long that only a test that hangs
// reaches it, even on a slow machine.
const Patience = 4 * time.Minute

// Eventually polls until done reports true. If that takes longer than Patience, it fails the test with
// a message that names what it waited for.
func Eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.After(Patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited %v for %s", Patience, what)
		}
	}
}

// LeafAddr returns the address on which the server listens for leaf nodes. It fails the test if the
// server is not configured to listen for them.
func (s *Server) LeafAddr() string {
	s.t.Helper()
	v, err := s.Varz(nil)
	if err != nil || v.LeafNode.Port <= 0 {
		s.t.Fatalf("no listener for leaf nodes: %v", err)
	}
	return net.JoinHostPort(v.LeafNode.Host, strconv.Itoa(v.LeafNode.Port))
}

// NewProxy starts a proxy in front of the server at url. The end of the test closes it.
func NewProxy(t testing.TB, url string) *proxy.Proxy {
	t.Helper()
	p, err := proxy.To(strings.TrimPrefix(url, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Version makes a client believe that the server has another version. The text must not be longer
// than the real version. The server itself is unchanged, so a test with Version shows only what the
// client requests from an older server.
func Version(version string) nats.Option {
	actual := fmt.Sprintf("%q:%q", "version", server.VERSION)
	fake := fmt.Sprintf("%q:%q", "version", version)
	return nats.SetCustomDialer(versionDialer{[]byte(actual), []byte(fake + strings.Repeat(" ", max(0, len(actual)-len(fake))))})
}

// versionDialer replaces actual with fake in what the server sends. Both have the same length.
type versionDialer struct{ actual, fake []byte }

func (d versionDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return &versionConn{conn, d}, nil
}

type versionConn struct {
	net.Conn
	versionDialer
}

func (c *versionConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	copy(p, bytes.ReplaceAll(p[:n], c.actual, c.fake))
	return n, err
}
