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
	// lookEvery is how often the server is checked for failed writes.
	lookEvery = 2 * time.Second

	// roomWanted is how many bytes must be free and writable before a restart.
	roomWanted = 1 << 20

	// restartsApart is the longest time between two restarts: a broken disk that is not full
	// must not restart the server all the time.
	restartsApart = time.Minute
)

// StorageSubject answers requests with the reason while the storage of an embedded server
// is full, because the reason cannot be stored. At other times nothing answers there.
const StorageSubject = "_CRONCE.SERVER.STORAGE"

// confess answers on StorageSubject until stop is called.
func (s *Server) confess(why string) (stop func()) {
	ns := s.running()
	if ns == nil {
		return func() {}
	}
	nc, err := nats.Connect("", nats.InProcessServer(ns), nats.NoReconnect(), nats.Name("cronce storage"))
	if err == nil {
		_, err = nc.Subscribe(StorageSubject, func(m *nats.Msg) { _ = m.Respond([]byte(s.cfg.Store + ": " + why)) })
	}
	if err != nil {
		s.cfg.Logger.Debug("questions about the full storage are not answered", "error", err)
	}
	return func() {
		if nc != nil {
			nc.Close()
		}
	}
}

// watchStorage watches the server's storage until ctx ends.
func (s *Server) watchStorage(ctx context.Context) {
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	said, apart := "", lookEvery
	silence := func() {}
	defer func() { silence() }()
	var next time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		why := s.full()
		if why == "" {
			silence()
			said, silence = "", func() {}
			continue
		}
		if said != why {
			said = why
			silence()
			silence = s.confess(why)
			s.cfg.Logger.Error("storage is full: the embedded server stores nothing, so no slot is published or recorded; free space on this disk and it continues by itself",
				"store", s.cfg.Store, "reason", why)
		}
		if time.Now().Before(next) || !s.hasRoom() {
			continue
		}
		apart = min(2*apart, restartsApart)
		next = time.Now().Add(apart)
		s.cfg.Logger.Warn("storage has free space again: restarting the embedded server", "store", s.cfg.Store)
		if err := s.again(ctx); err != nil {
			s.cfg.Logger.Error("embedded server cannot restart yet", "store", s.cfg.Store, "error", err)
			continue
		}
		said = ""
	}
}

// full returns why the server cannot write. Empty: it can.
func (s *Server) full() string {
	ns := s.running()
	if ns == nil {
		return "the server could not be started anew"
	}
	js, err := ns.Jsz(nil)
	if err != nil {
		return ""
	}
	if js.Disabled {
		return "the server has given up its storage"
	}
	if js.Store > uint64(max(js.Config.MaxStore, 0)) {
		return fmt.Sprintf("%d bytes are stored, of %d that were to be had when it started", js.Store, js.Config.MaxStore)
	}
	if health := ns.Healthz(&server.HealthzOptions{}); strings.Contains(health.Error, "write error") {
		return health.Error
	}
	return ""
}

// hasRoom reports whether a server that starts now could write.
func (s *Server) hasRoom() bool {
	var used uint64
	if ns := s.running(); ns != nil {
		if js, err := ns.Jsz(nil); err == nil {
			used = js.Store
		}
	}
	// The server's limit is three quarters of the free space and of what it holds.
	if free, known := freeSpace(s.cfg.Store); known && (free+used)/4*3 < used+roomWanted {
		return false
	}
	return writable(s.cfg.Store)
}

// writable reports whether a file of some size can be written in dir.
func writable(dir string) bool {
	path := filepath.Join(dir, "cronce.room")
	err := os.WriteFile(path, make([]byte, roomWanted), 0o600)
	return errors.Join(err, os.Remove(path)) == nil
}

// again restarts the server at the same address. It holds the lock all the time, so that no
// other process takes over.
func (s *Server) again(ctx context.Context) error {
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

func (s *Server) running() *server.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nats
}
