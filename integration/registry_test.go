//go:build long && unix

package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/proxy"
)

// leaseOverWires is so long that a silence of more than a second is still much shorter.
const leaseOverWires = 6 * time.Second

// A worker hears nothing from the broker for a quarter of its lease. It keeps its name, and its slot runs on.
func TestWorkerKeepsItsSlotOverASilenceShorterThanItsLease(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	instant := soon()
	file := s.jobs("sleep 4; "+tick, "name: work, "+at(instant))
	far, w := s.farWorker(file)
	s.worker("near", file).says("node is up")
	incarnation := s.node("far").Node
	id := slotID("work", instant)
	eventually(t, "the slot to run", func() bool { return s.record(id).State == "running" })
	owner := s.record(id).Node

	w.Set(silent)
	gone := time.Now()
	eventually(t, "a silence shorter than the lease", func() bool { return time.Since(gone) > leaseOverWires/4 })
	w.Heal()
	r := s.ends(id, "succeeded")
	if r.Attempt != 1 || r.Node != owner || count(s.touched(), "start") != 1 {
		t.Errorf("want one attempt, on %s; the record is %+v, and the actions wrote %q", owner, r, s.touched())
	}
	if n := s.node("far"); n.Node != incarnation || n.State != "alive" {
		t.Errorf("node %s is %s, want %s alive", n.Node, n.State, incarnation)
	}
	if strings.Contains(far.stderr(), "lease lost") {
		t.Error("the worker lost its lease")
	}
}

// A worker hears nothing from the broker for longer than its lease. Its action is ended before another worker
// starts the slot. The record of its node says which node fenced it, and when. When it hears from the broker again,
// its completion is refused, and it goes on under a new name.
func TestWorkerIsFencedOverASilenceLongerThanItsLease(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	instant := soon().Add(time.Second)
	file := s.jobs(staysOnce, "name: stay, "+at(instant))
	far, w := s.farWorker(file)
	id := slotID("stay", instant)
	eventually(t, "the first attempt and its family", func() bool {
		return len(s.touched()) == 1 && len(s.lines("family")) == familySize
	})
	_, incarnation, fence := parseStart(t, s.touched()[0])
	near := s.worker("near", file)
	near.says("node is up")

	w.Set(silent)
	gone := time.Now()
	b := begun{site: s, id: id, owner: far, other: near, fence: fence, family: s.lines("family"), incarnation: incarnation}
	b.familyIsGone()
	b.ends(id, "succeeded")
	if lines := s.touched(); len(lines) != 2 || strings.HasPrefix(lines[1], "survivor") {
		t.Fatalf("want two starts and no survivors, got %q", lines)
	}
	attempt, by, second := parseStart(t, s.touched()[1])
	if attempt != 2 || second <= fence || !strings.HasPrefix(by, "near-") {
		t.Errorf("second attempt %q: want attempt 2 on the near node with a fence larger than %d", s.touched()[1], fence)
	}
	outcome := s.record(id)
	w.Heal()
	far.says("completion refused")
	far.says("starting again under a new name")
	eventually(t, "the worker to be back under a new name", func() bool {
		n := s.node("far")
		return n.State == "alive" && n.Node != incarnation
	})
	for _, n := range s.nodes() {
		if n.Node != incarnation {
			continue
		}
		if n.State != "fenced" || n.FencedBy != by || n.FencedAt.Before(gone) {
			t.Errorf("want %s fenced by %s after %v; node ls says %+v", incarnation, by, gone.UTC(), n)
		}
	}
	if now := s.record(id); now != outcome {
		t.Errorf("the outcome changed from %+v to %+v", outcome, now)
	}
	b.oneOutcome("succeeded", 2, second)
}

// farWorker starts the first node of the namespace, which stores the lease. The node reaches the server only over
// the wire.
func (s *site) farWorker(file string) (*process, *proxy.Proxy) {
	s.t.Helper()
	w := s.wire()
	far := s.over(w).worker("far", file, "--lease", leaseOverWires.String())
	far.says("node is up")
	return far, w
}
