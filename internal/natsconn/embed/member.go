package embed

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// pollEvery, with jitter, is how often a waiting process tries again. The process must take
	// over within 3 s.
	pollEvery = 50 * time.Millisecond

	// refusedEvery, with jitter, is how often a waiting process connects again to a server that refuses
	// its connection. Each refusal is a line in the server's log.
	refusedEvery = 500 * time.Millisecond

	// unclearFor is how long a process on the address may stay silent before we
	// report that it is not a NATS server. lockedFor is how long the process that has
	// our store may take to listen: it may have many files to recover.
	unclearFor = 3 * time.Second
	lockedFor  = 30 * time.Second
)

// Member is this process's role for the server on one address: it serves, stands by to
// take over, or has only joined. Its methods are safe for concurrent use.
type Member struct {
	cfg    Config
	cancel context.CancelFunc
	done   chan struct{} // closed when standBy has ended

	mu     sync.Mutex
	server *Server // nil while another process serves
}

// JoinOrStart joins the NATS server that answers on cfg.Listen, or else starts
// one. It returns when a server answers. ctx bounds that only: a member lives
// until Close.
func JoinOrStart(ctx context.Context, cfg Config) (*Member, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	for {
		in, srv, err := joinOrStart(ctx, cfg)
		if err == nil {
			return newMember(cfg, in, srv), nil
		}
		if time.Since(began) >= patience(cfg, err) {
			return nil, explain(cfg, err)
		}
		if err := pause(ctx, pollEvery); err != nil {
			return nil, err
		}
	}
}

// joinOrStart tries once. The server is nil when another process serves.
func joinOrStart(ctx context.Context, cfg Config) (info, *Server, error) {
	in, err := probe(ctx, cfg.Listen)
	switch {
	case ctx.Err() != nil:
		return info{}, nil, context.Cause(ctx)
	case !errors.Is(err, errAbsent):
		return in, nil, err
	}
	srv, err := start(cfg)
	return info{}, srv, err
}

// patience returns how long JoinOrStart waits until another process resolves err. 0: it does not
// wait.
func patience(cfg Config, err error) time.Duration {
	var locked *lockedError
	switch {
	case errors.As(err, &locked):
		// If the address is unknown, the process took the lock a moment ago.
		if locked.Listen == "" || locked.Listen == cfg.Listen {
			return lockedFor
		}
	case errors.Is(err, errUnclear), inUse(err):
		return unclearFor
	}
	return 0
}

// explain replaces the errors of probe by errors for users.
func explain(cfg Config, err error) error {
	if errors.Is(err, errNotNATS) || errors.Is(err, errUnclear) {
		return taken(cfg.Listen, err)
	}
	return err
}

// pause waits before the next try, at least for least and less than twice as long. It returns the cause if ctx ends.
func pause(ctx context.Context, least time.Duration) error {
	select {
	case <-time.After(least + rand.N(least)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func newMember(cfg Config, in info, srv *Server) *Member {
	ctx, cancel := context.WithCancel(context.Background())
	m := &Member{cfg: cfg, cancel: cancel, done: make(chan struct{}), server: srv}
	if srv != nil {
		cfg.Logger.Info("this process serves NATS on this machine", "url", m.URL(), "store", cfg.Store)
	}
	if srv != nil || !m.mayTakeOver(in) {
		close(m.done)
		return m
	}
	go func() {
		defer close(m.done)
		m.standBy(ctx, in)
	}()
	return m
}

// mayTakeOver reports whether this process may take over from a server that it has joined. It logs
// which server that is.
func (m *Member) mayTakeOver(in info) bool {
	log := m.cfg.Logger.With("url", m.URL(), "server", in.Name)
	h, err := readHolder(m.cfg.Store)
	if err == nil && h.Server == in.Name && in.Name != "" {
		log.Info("joined the NATS server already running here", "pid", h.PID, "store", m.cfg.Store)
		return true
	}
	if strings.HasPrefix(in.Name, namePrefix) {
		log.Warn("joined the NATS server already running here; its files are in another store than ours: when it stops, we wait for it", "our_store", m.cfg.Store)
	} else {
		log.Warn("joined the NATS server already running here; cronce did not start it: when it stops, we wait for it")
	}
	return false
}

// standBy waits until the server in, which is on our store, ends. Then it takes over, or joins the
// process that was faster. It returns when this process serves or may no longer take over.
func (m *Member) standBy(ctx context.Context, in info) {
	for ctx.Err() == nil {
		if err := m.awaitEnd(ctx, in); err != nil {
			return
		}
		m.cfg.Logger.Info("NATS server stopped: taking over, or joining the process that does", "url", m.URL())
		var srv *Server
		var err error
		in, srv, err = m.takeOver(ctx)
		switch {
		case err != nil:
			return
		case srv != nil:
			m.mu.Lock()
			m.server = srv
			m.mu.Unlock()
			m.cfg.Logger.Info("took over: this process serves NATS now", "url", m.URL(), "store", m.cfg.Store)
			return
		case !m.mayTakeOver(in):
			return
		}
	}
}

// awaitEnd blocks while the server in runs. It holds an idle connection that ends with the server. If
// the server refuses it, for example because it has too many connections, awaitEnd tries again while
// the server greets its clients.
func (m *Member) awaitEnd(ctx context.Context, in info) error {
	for logged := false; ; {
		ended := make(chan struct{})
		nc, err := nats.Connect(m.URL(),
			nats.Name("cronce standing by"),
			nats.NoReconnect(),
			nats.ClosedHandler(func(*nats.Conn) { close(ended) }),
		)
		if err == nil {
			defer nc.Close()
			if nc.ConnectedServerName() != in.Name { // that one has ended, and another took its address
				return nil
			}
			select {
			case <-ended:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if now, gone := probe(ctx, m.cfg.Listen); gone != nil || now.Name != in.Name {
			return context.Cause(ctx) // nil: the server has ended already
		}
		if !logged {
			m.cfg.Logger.Warn("the NATS server refuses the connection on which this process waits for its end: trying again", "url", m.URL(), "error", err)
			logged = true
		}
		if err := pause(ctx, refusedEvery); err != nil {
			return err
		}
	}
}

// takeOver retries joinOrStart until it succeeds. It logs the obstacle when it changes.
func (m *Member) takeOver(ctx context.Context) (info, *Server, error) {
	var logged string
	began := time.Now()
	for {
		in, srv, err := joinOrStart(ctx, m.cfg)
		if err == nil {
			return in, srv, nil
		}
		text := explain(m.cfg, err).Error()
		if text != logged && (!isTakeover(err) || time.Since(began) > unclearFor) {
			m.cfg.Logger.Warn("cannot take over yet", "error", text)
			logged = text
		}
		if err := pause(ctx, pollEvery); err != nil {
			return info{}, nil, err
		}
	}
}

// isTakeover reports whether err is expected while another process takes over.
func isTakeover(err error) bool {
	_, locked := errors.AsType[*lockedError](err)
	return locked || errors.Is(err, errUnclear) || inUse(err)
}

// URL is the address for clients. It does not depend on which process serves.
func (m *Member) URL() string { return "nats://" + m.cfg.Listen }

// Close ends the membership. If this process serves, Close shuts down the server and
// another member takes over. Call it once.
func (m *Member) Close() error {
	m.cancel()
	<-m.done
	if m.server == nil {
		return nil
	}
	return m.server.Close()
}
