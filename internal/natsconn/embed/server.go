package embed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// readyTimeout is how long a server that has opened its files may take to listen.
const readyTimeout = 10 * time.Second

// freePortTries is how many more ports Start tries if another process takes the one that
// the system selected.
const freePortTries = 3

// Server is an embedded server that this process runs.
type Server struct {
	cfg  Config
	name string
	lock *storeLock

	mu   sync.Mutex
	nats *server.Server // nil if a restart failed

	unwatch context.CancelFunc
	watched chan struct{} // closed when watchStorage has ended
}

// Start runs a server on cfg.Listen with the files in cfg.Store. It never joins another server: it
// returns an error if the address or the store is in use.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	in, err := probe(ctx, cfg.Listen)
	switch {
	case err == nil:
		return nil, fmt.Errorf("a NATS server (%s) already answers on %s", in.Name, cfg.Listen)
	case !errors.Is(err, errAbsent):
		return nil, taken(cfg.Listen, err)
	}
	return start(cfg)
}

// taken returns the error for an address on which probe found another process.
func taken(addr string, err error) error {
	if errors.Is(err, errNotNATS) {
		return fmt.Errorf("%s is in use by something that is not a NATS server", addr)
	}
	return fmt.Errorf("%s is in use by something that does not answer like a NATS server: %w", addr, err)
}

// start takes the lock and serves. If another process has the store, the error is a
// *lockedError. If the address is in use, inUse reports true for the error, or the error is
// errUnclear if another process has just taken the address. If start fails before the server
// opens its files, it leaves no new store behind.
func start(cfg Config) (*Server, error) {
	lock, err := lockStore(cfg.Store)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(cfg.Store); err == nil {
		if who := otherWriters(info); who != "" {
			cfg.Logger.Warn("others may write to the store: they can change or remove all jobs and slots", "store", cfg.Store, "who", who, "fix", "chmod go-w, or another folder with --store DIR")
		}
	}
	s := &Server{cfg: cfg, name: namePrefix + rand.Text(), lock: lock, watched: make(chan struct{})}
	if cfg.Peer != nil {
		s.name = cfg.Peer.Name
	}
	// Another process may take a free port between its choice and its use.
	for tries := freePortTries; ; tries-- {
		err := s.listen(cfg.Listen)
		if err == nil {
			break
		}
		if tries == 0 || !isAnyPort(cfg.Listen) || !errors.Is(err, errUnclear) {
			lock.discard()
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.unwatch = cancel
	go func() { defer close(s.watched); s.watchStorage(ctx) }()
	return s, nil
}

// listen serves on addr. It writes the address into the lock file first.
func (s *Server) listen(addr string) (err error) {
	if s.cfg.Listen, err = canListen(addr); err != nil {
		return fmt.Errorf("cannot listen on %s: %w", addr, err)
	}
	if err := s.lock.describe(holder{os.Getpid(), s.cfg.Listen, s.name}); err != nil {
		return storeError(s.cfg.Store, err)
	}
	s.nats, err = serve(s.cfg, s.name)
	return err
}

// isAnyPort reports whether addr leaves the choice of the port to the system.
func isAnyPort(addr string) bool { return strings.HasSuffix(addr, ":0") }

// canListen returns the address with port 0 replaced by a free port, or an error if it cannot
// listen there. The server itself would notice that only after it has opened its files.
func canListen(addr string) (string, error) {
	l, err := net.Listen("tcp", addr)
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return addr, op.Err // the rest repeats the address
	}
	if err != nil {
		return addr, err
	}
	host, port, _ := net.SplitHostPort(addr)
	if port == "0" {
		port = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	}
	return net.JoinHostPort(host, port), l.Close()
}

// serve starts a server, and returns when it accepts connections.
func serve(cfg Config, name string) (*server.Server, error) {
	host, port, err := splitAddress(cfg.Listen)
	if err != nil {
		return nil, err
	}
	options := &server.Options{
		ServerName: name,
		Host:       host,
		Port:       port,
		JetStream:  true,
		StoreDir:   cfg.Store,
		SyncAlways: true,
		NoSigs:     true,
		MaxPayload: int32(cfg.MaxPayload),
	}
	if err := cfg.Peer.join(options); err != nil {
		return nil, err
	}
	ns, err := server.NewServer(options)
	if err != nil {
		return nil, fmt.Errorf("embedded server: %w", err)
	}
	log := &bridge{log: cfg.Logger.With("from", "nats-server")}
	ns.SetLoggerV2(log, false, false, false)
	ns.Start()
	if reason := log.fatal(); reason != "" {
		stop(ns)
		if strings.HasPrefix(reason, "Error listening") {
			// Another process took the address after our check.
			return nil, fmt.Errorf("%w on %s: %s", errUnclear, cfg.Listen, reason)
		}
		return nil, fmt.Errorf("embedded server with store %s: %s", cfg.Store, reason)
	}
	if !ns.ReadyForConnections(readyTimeout) {
		stop(ns)
		return nil, fmt.Errorf("embedded server: not ready after %v", readyTimeout)
	}
	return ns, nil
}

func splitAddress(addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	return host, port, err
}

func (p *Peer) join(o *server.Options) error {
	if p == nil {
		return nil
	}
	host, port, err := splitAddress(p.Listen)
	if err != nil {
		return err
	}
	o.Cluster = server.ClusterOpts{Name: "cronce", Host: host, Port: port}
	for _, route := range p.Routes {
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: route})
	}
	return nil
}

// stop disconnects every client before the server shuts down. During its shutdown, a server
// ends the pull requests of workers, and then still delivers slots for a moment. A slot that
// is delivered to an ended request is redelivered only after a whole lease. A client that
// was disconnected before has received all that was sent to it. It reconnects, and repeats
// its requests and publications.
func stop(ns *server.Server) {
	const all = 1 << 20
	if conns, err := ns.Connz(&server.ConnzOptions{Limit: all}); err == nil {
		for _, c := range conns.Conns {
			_ = ns.DisconnectClientByID(c.Cid) // it fails only if the client has disconnected by itself
		}
	}
	ns.Shutdown()
	ns.WaitForShutdown()
}

// URL is where clients connect.
func (s *Server) URL() string { return "nats://" + s.cfg.Listen }

// Store is the directory of the server's files.
func (s *Server) Store() string { return s.cfg.Store }

// Close stops the server. It releases the lock last, so that the server's files are closed when
// another process takes it.
func (s *Server) Close() error {
	s.unwatch()
	<-s.watched
	if s.nats != nil {
		stop(s.nats)
	}
	return s.lock.release()
}

// bridge is the server's logger. Notices are logged at debug level. The server continues
// after a fatal message; the first one is the reason why a start failed.
type bridge struct {
	log *slog.Logger

	mu    sync.Mutex
	first string
}

func (b *bridge) Noticef(format string, v ...any) { b.log.Debug(fmt.Sprintf(format, v...)) }
func (b *bridge) Debugf(format string, v ...any)  { b.log.Debug(fmt.Sprintf(format, v...)) }
func (b *bridge) Tracef(format string, v ...any)  { b.log.Debug(fmt.Sprintf(format, v...)) }
func (b *bridge) Warnf(format string, v ...any) {
	level := slog.LevelWarn
	message := fmt.Sprintf(format, v...)
	if newer := strings.TrimSpace(message); strings.HasPrefix(newer, "Detected unsupported ") {
		// The server would start and never answer requests about this stream or consumer.
		b.Fatalf("it was written by a newer version: %s: start that version, or name another store with --store DIR", newer)
		return
	}
	if strings.HasPrefix(message, "Filestore [") && strings.Contains(message, "tream state") {
		// After a kill, the server rebuilds its index from the messages. That is
		// normal at a restart.
		level = slog.LevelDebug
	}
	b.log.Log(context.Background(), level, message)
}

func (b *bridge) Errorf(format string, v ...any) { b.log.Error(fmt.Sprintf(format, v...)) }

func (b *bridge) Fatalf(format string, v ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.first == "" {
		b.first = fmt.Sprintf(format, v...)
	}
}

func (b *bridge) fatal() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.first
}
