//go:build long && unix

package integration

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// A lock that cannot be read holds up its job, and a record its slot. doctor names both
// and what removes them; with them gone the job goes on, and what has changed in between
// or a newer version wrote is left.
func TestUnreadableValuesAreRemovedAndTheJobGoesOn(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	file := s.jobs("echo $CRONCE_SLOT_ID >> touched", `name: report, schedule: "0 0 1 1 *", overlap: queue`, `name: free, schedule: "0 0 1 1 *", overlap: allow`)
	setup := s.start("setup", "setup", "--queue", "default")
	if code := setup.exit(); code != 0 {
		t.Fatal(setup.stderr())
	}
	state, ledger := s.bucket("state"), s.bucket("ledger")
	put := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := state.PutString(t.Context(), "lock.report", `{"v":1,"job":"report","holders":"`+strings.Repeat("x", 5000)+`"}`)
	put(err)
	_, err = ledger.PutString(t.Context(), "free.t.a", `{"v":1,"id":"free:@a","state":"running","shards":9223372036854775807}`)
	put(err)
	_, err = ledger.PutString(t.Context(), "free.t.newer", `{"v":2}`)
	put(err)
	node := s.worker("w", file)
	node.says("node is up")
	for _, id := range []string{"report:@k", "free:@a", "free:@b"} {
		name, _, _ := strings.Cut(id, ":")
		_, err := s.js.PublishMsg(t.Context(), &nats.Msg{Subject: "cronce.slot.default." + name, Header: nats.Header{"Nats-Msg-Id": {id}}})
		put(err)
	}
	eventually(t, "a slot without such a record to run", func() bool { return slices.Contains(s.touched(), "free:@b") })

	// Each command about the slot says what mends it.
	for _, args := range [][]string{{"slot", "show", "free:@a"}, {"slot", "cancel", "free:@a"}, {"slot", "retry", "free:@a"}, {"slot", "explain", "free:@a"}} {
		p := s.start(strings.Join(args, " "), args...)
		if code := p.exit(); code != 1 || !strings.Contains(p.stderr(), "cronce doctor --remove-unreadable") || !strings.Contains(p.stderr(), "shards") {
			t.Errorf("%s: %d: %s", p.name, code, p.stderr())
		}
	}
	explained := s.start("explain", "slot", "explain", "report:@k")
	if code := explained.exit(); code != 0 || !strings.Contains(explained.stdout(), "cronce doctor --remove-unreadable") {
		t.Errorf("explain of a slot that waits for the lock: %d: %s%s", code, explained.stdout(), explained.stderr())
	}
	doctor := s.start("doctor", "doctor")
	if code := doctor.exit(); code != 3 {
		t.Errorf("doctor: %d: %s", code, doctor.stderr())
	}
	for _, says := range []string{"job report: its lock cannot be read: key lock.report of bucket cronce_state", "job free: 2 of its records cannot be read", "cronce doctor --remove-unreadable"} {
		if !strings.Contains(doctor.stdout(), says) {
			t.Errorf("doctor does not say %q:\n%s", says, doctor.stdout())
		}
	}

	// There is no terminal to answer on: nothing is removed.
	mute := s.start("mute", "doctor", "--remove-unreadable")
	if code := mute.exit(); code != 2 || !strings.Contains(mute.stderr(), "--yes") {
		t.Errorf("without a terminal: %d: %s", code, mute.stderr())
	}
	if _, err := ledger.Get(t.Context(), "free.t.a"); err != nil {
		t.Errorf("the record is gone: %v", err)
	}
	remove := s.start("remove", "doctor", "--remove-unreadable", "--yes")
	if code := remove.exit(); code != 3 { // the newer one is left
		t.Errorf("remove: %d: %s", code, remove.stderr())
	}
	for _, says := range []string{"removed cronce_state/lock.report", "removed cronce_ledger/free.t.a"} {
		if !strings.Contains(remove.stdout(), says) {
			t.Errorf("remove does not say %q:\n%s", says, remove.stdout())
		}
	}
	if !strings.Contains(remove.stderr(), "--force") {
		t.Errorf("it does not say what removes the newer one: %s", remove.stderr())
	}
	if e, err := ledger.Get(t.Context(), "free.t.newer"); err != nil || string(e.Value()) != `{"v":2}` {
		t.Errorf("what a newer version may have written is gone: %v", err)
	}
	eventually(t, "the job to go on", func() bool {
		return slices.Contains(s.touched(), "report:@k") && slices.Contains(s.touched(), "free:@a")
	})
	force := s.start("force", "doctor", "--remove-unreadable", "--yes", "--force")
	force.exit()
	if _, err := ledger.Get(t.Context(), "free.t.newer"); err == nil {
		t.Errorf("with --force it stays: %s", force.stdout())
	}
	term(node)
}
