package embed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// A server whose disk is full refuses every write, even after space is free again: it
// computes its limit once, from the free space at its start, and a stream whose file could
// not be written accepts nothing more. Only a restart fixes either. So this process
// watches its embedded server: it logs that storage is full, waits for free space, and
// restarts the server in place. Clients reconnect, and producers publish again.

const (
	// checkEvery is how often the server is checked for failed writes.
	checkEvery = 2 * time.Second

	// spaceWanted is how many bytes must be free and writable before a restart.
	spaceWanted = 1 << 20

	// maxPause bounds the pause between two restarts.
	maxPause = time.Minute
)

// restarts spaces the restarts of a server. The pause doubles each time: a disk that is broken and not
// full must not restart the server all the time.
type restarts struct {
	last  time.Time
	pause time.Duration // after last
}

// due reports whether the pause after the last restart is over.
func (r *restarts) due(now time.Time) bool { return now.Sub(r.last) >= r.pause }

func (r *restarts) begin(now time.Time) {
	r.last, r.pause = now, min(max(2*r.pause, 2*checkEvery), maxPause)
}

// healthy notes that the server can write. If the last restart was maxPause ago or longer, the disk
// was full and not broken, so the next pause is the shortest one again.
func (r *restarts) healthy(now time.Time) {
	if now.Sub(r.last) >= maxPause {
		r.pause = 0
	}
}

// StorageSubject is the subject on which the process of an embedded server answers requests while
// the server's storage is full. The answer is the reason, which cannot be stored then. At other times
// no process answers there.
const StorageSubject = "_CRONCE.SERVER.STORAGE"

// answerWhy answers on StorageSubject until stop is called.
func (s *Server) answerWhy(why string) (stop func()) {
	ns := s.running()
	if ns == nil {
		return func() {}
	}
	nc, err := nats.Connect("", nats.InProcessServer(ns), nats.NoReconnect(), nats.Name("cronce storage"))
	if err == nil {
		_, err = nc.Subscribe(StorageSubject, func(m *nats.Msg) { _ = m.Respond([]byte(s.cfg.Store + ": " + why)) })
	}
	if err != nil {
		s.cfg.Logger.Debug("cannot answer requests about the full storage", "error", err)
	}
	return func() {
		if nc != nil {
			nc.Close()
		}
	}
}

func (s *Server) watchStorage(ctx context.Context) {
	every := time.NewTicker(checkEvery)
	defer every.Stop()
	logged, stopAnswering := "", func() {}
	defer func() { stopAnswering() }()
	var restarts restarts
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		why := s.full()
		if why == "" {
			stopAnswering()
			logged, stopAnswering = "", func() {}
			restarts.healthy(time.Now())
			continue
		}
		if logged != why {
			logged = why
			stopAnswering()
			stopAnswering = s.answerWhy(why)
			s.cfg.Logger.Error("storage is full: the embedded server stores nothing, so no slot is published or recorded; free space on this disk and it continues by itself",
				"store", s.cfg.Store, "reason", why)
		}
		if !restarts.due(time.Now()) || !s.hasSpace() {
			continue
		}
		restarts.begin(time.Now())
		s.cfg.Logger.Warn("storage has free space again: restarting the embedded server", "store", s.cfg.Store)
		if err := s.restart(ctx); err != nil {
			s.cfg.Logger.Error("embedded server cannot restart yet", "store", s.cfg.Store, "error", err)
			continue
		}
		logged = ""
	}
}

// full returns the reason why the server cannot write. Empty: it can.
func (s *Server) full() string {
	ns := s.running()
	if ns == nil {
		return "the server could not be restarted"
	}
	js, err := ns.Jsz(nil)
	if err != nil {
		return ""
	}
	if js.Disabled {
		return "the server has disabled its storage"
	}
	if js.Store > uint64(max(js.Config.MaxStore, 0)) {
		return fmt.Sprintf("%d bytes are stored; %d were available when the server started", js.Store, js.Config.MaxStore)
	}
	if health := ns.Healthz(&server.HealthzOptions{}); strings.Contains(health.Error, "write error") {
		return health.Error
	}
	return ""
}

// hasSpace reports whether a server that starts now could write.
func (s *Server) hasSpace() bool {
	var used uint64
	if ns := s.running(); ns != nil {
		if js, err := ns.Jsz(nil); err == nil {
			used = js.Store
		}
	}
	// At its start, the server takes as its limit three quarters of the sum of the free space and of
	// what it has stored.
	if free, known := freeSpace(s.cfg.Store); known && (free+used)/4*3 < used+spaceWanted {
		return false
	}
	return writable(s.cfg.Store)
}

// writable reports whether a file of spaceWanted bytes can be written in dir. It follows no link that
// another user may have put in place of the file.
func writable(dir string) bool {
	path := filepath.Join(dir, "cronce.room")
	_ = os.Remove(path) // of a process that was killed
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false
	}
	_, err = f.Write(make([]byte, spaceWanted))
	return errors.Join(err, f.Close(), os.Remove(path)) == nil
}

// restart restarts the server at the same address. It keeps the lock on the store, so that no other
// process takes over.
func (s *Server) restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if s.nats != nil {
		stop(s.nats)
		s.nats = nil
	}
	ns, err := serve(s.cfg, s.name)
	if err == nil {
		s.nats = ns
	}
	return err
}

// running returns the server, or nil if it could not be restarted.
func (s *Server) running() *server.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nats
}
