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

// A server whose disk is full refuses every write, and goes on to refuse when there is
// room again: it computes its limit once, from what was free when it started, and a
// stream whose file could not be written takes nothing more. Only a new start mends
// either. So this process looks after the server that it embeds: it says that storage is
// full, waits for room, and starts the server anew in place. Clients connect again, and
// producers publish what was refused.

const (
	// lookEvery is how often the server is asked whether it can still write.
	lookEvery = 2 * time.Second

	// roomWanted is how many bytes have to be free, and can be written, before the
	// server is started anew.
	roomWanted = 1 << 20

	// restartsApart is the longest time between two new starts: a disk that is broken,
	// and not full, must not have the server start all the time.
	restartsApart = time.Minute
)

// StorageSubject is where an embedded server whose storage is full says so, to whoever
// asks: nothing about it can be stored. At other times nothing answers there.
const StorageSubject = "_CRONCE.SERVER.STORAGE"

// confess answers on StorageSubject until the returned function is called.
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

// watchStorage looks after the server until ctx ends.
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
			s.cfg.Logger.Error("storage is full: the embedded server stores nothing, so no slot is published or recorded; free space on this disk, and it goes on by itself",
				"store", s.cfg.Store, "reason", why)
		}
		if time.Now().Before(next) || !s.hasRoom() {
			continue
		}
		apart = min(2*apart, restartsApart)
		next = time.Now().Add(apart)
		s.cfg.Logger.Warn("there is room again: starting the embedded server anew", "store", s.cfg.Store)
		if err := s.again(ctx); err != nil {
			s.cfg.Logger.Error("the embedded server cannot start anew yet", "store", s.cfg.Store, "error", err)
			continue
		}
		said = ""
	}
}

// full says why the server cannot write; empty: it can.
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
	// Of what is free, and of what it holds, the server takes three quarters.
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

// again starts the server anew, at the same address and under the same lock: to those
// who stand by, it is held all the while.
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
