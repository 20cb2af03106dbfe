//go:build long && unix

package integration

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// An unreadable lock holds up its job, and an unreadable record its slot. doctor names both, and the command that
// removes them. After that the job goes on. A record of a newer version is removed only with --force.
func TestUnreadableValuesAreRemovedAndTheJobGoesOn(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	file := s.jobs("echo $CRONCE_SLOT_ID >> touched", `name: report, schedule: "0 0 1 1 *", overlap: queue`, `name: free, schedule: "0 0 1 1 *", overlap: allow`)
	s.command(0, "setup", "--queue", "default")
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
	eventually(t, "the slot without a record to run", func() bool { return slices.Contains(s.touched(), "free:@b") })

	// Each command about the slot names the command that removes the record.
	for _, args := range [][]string{{"slot", "show", "free:@a"}, {"slot", "cancel", "free:@a"}, {"slot", "retry", "free:@a"}, {"slot", "explain", "free:@a"}} {
		p := s.command(1, args...)
		if !strings.Contains(p.stderr(), "cronce doctor --remove-unreadable") || !strings.Contains(p.stderr(), "shards") {
			t.Errorf("%s: %s", p.name, p.stderr())
		}
	}
	if p := s.command(0, "slot", "explain", "report:@k"); !strings.Contains(p.stdout(), "cronce doctor --remove-unreadable") {
		t.Errorf("slot explain of a slot that waits for the lock: %s", p.stdout())
	}
	doctor := s.command(3, "doctor")
	for _, says := range []string{"job report: its lock cannot be read: key lock.report of bucket cronce_state", "job free: 2 of its records cannot be read", "cronce doctor --remove-unreadable"} {
		if !strings.Contains(doctor.stdout(), says) {
			t.Errorf("doctor does not say %q:\n%s", says, doctor.stdout())
		}
	}

	// Without a terminal, doctor cannot ask, and removes nothing.
	if p := s.command(2, "doctor", "--remove-unreadable"); !strings.Contains(p.stderr(), "--yes") {
		t.Errorf("without a terminal: %s", p.stderr())
	}
	if _, err := ledger.Get(t.Context(), "free.t.a"); err != nil {
		t.Errorf("the record was removed without an answer: %v", err)
	}
	remove := s.command(3, "doctor", "--remove-unreadable", "--yes") // the record of a newer version is left
	for _, says := range []string{"removed cronce_state/lock.report", "removed cronce_ledger/free.t.a"} {
		if !strings.Contains(remove.stdout(), says) {
			t.Errorf("doctor --remove-unreadable does not say %q:\n%s", says, remove.stdout())
		}
	}
	if !strings.Contains(remove.stderr(), "--force") {
		t.Errorf("doctor --remove-unreadable does not say what removes the record of a newer version: %s", remove.stderr())
	}
	if e, err := ledger.Get(t.Context(), "free.t.newer"); err != nil || string(e.Value()) != `{"v":2}` {
		t.Errorf("the record of a newer version is not there any more: %v", err)
	}
	eventually(t, "the job to go on", func() bool {
		return slices.Contains(s.touched(), "report:@k") && slices.Contains(s.touched(), "free:@a")
	})
	force := s.start("force", "doctor", "--remove-unreadable", "--yes", "--force")
	force.exit()
	if _, err := ledger.Get(t.Context(), "free.t.newer"); err == nil {
		t.Errorf("the record of a newer version stays in spite of --force: %s", force.stdout())
	}
	term(node)
}
