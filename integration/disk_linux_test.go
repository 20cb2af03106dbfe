//go:build long

package integration

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fillDisk makes every write of the process fail that makes a file longer, as on a full disk, until mend is
// called. The system refuses such a write with "file too large". That needs no privileges, and Go programs
// ignore the signal. The process cannot log any more either.
func (p *process) fillDisk() (mend func()) {
	p.t.Helper()
	var before unix.Rlimit
	set := func(now, was *unix.Rlimit) {
		p.t.Helper()
		if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, now, was); err != nil {
			p.t.Fatal(err)
		}
	}
	set(nil, &before)
	set(&unix.Rlimit{Cur: 1, Max: before.Max}, nil)
	return func() { set(&before, nil) }
}

// The embedded server recovers by itself, and the slots whose publication was refused are published.
func TestEmbeddedServerGoesOnByItselfOnceItsDiskHasRoomAgain(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	id, workers := s.running("--lease", lease.String())
	mend := s.server.fillDisk()
	for _, w := range workers {
		w.says("lease lost")
	}
	s.write("goon", "")
	found := s.command(3, "doctor").stdout()
	if !strings.Contains(found, "its storage is full") || strings.Contains(found, "no live node") {
		t.Errorf("doctor must say that storage is full, and not that nodes are dead whose heartbeats cannot be stored:\n%s", found)
	}
	mend()
	s.ends(id, "succeeded")
	s.drained()
	for _, w := range workers {
		term(w)
	}
}

// The server's disk is full, and nothing is stored any more, not even heartbeats. So the fleet ends what it
// runs before its leases expire. When the disk has room and the server was restarted, as an external
// server must be, each slot has one outcome.
func TestFullDiskLosesNoSlot(t *testing.T) {
	t.Parallel()
	s := newForeignSite(t)
	id, workers := s.running("--lease", lease.String())
	fence := s.record(id).revision
	mend := s.server.fillDisk()
	for _, w := range workers {
		w.says("lease lost")
	}
	s.write("goon", "")
	began := time.Now()
	eventually(t, "a full disk for a while", func() bool { return time.Since(began) > lease })
	if n := count(s.touched(), "end "); n != 0 {
		t.Errorf("the run outlived the lease: %q", s.touched())
	}
	if !s.server.running() || !s.nc.IsConnected() {
		t.Error("the server is gone: this shows nothing of its disk")
	}
	mend()
	s.restartServer((*process).kill)
	if r := s.ends(id, "succeeded"); r.Attempt != 2 || r.revision <= fence {
		t.Errorf("want the second attempt, got %+v after the claim at %d", r, fence)
	}
	s.drained()
	if lines := s.touched(); len(lines) != 3 || count(lines, "end ") != 1 {
		t.Errorf("want two starts and one end, got %q", lines)
	}
	for _, w := range workers {
		term(w)
	}
}
