//go:build long && unix

package integration

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// defaultAddress is where "cronce run" embeds its server without further flags.
const defaultAddress = "127.0.0.1:4222"

// fleet is processes that come and go on a site without a server. One of them embeds the server.
type fleet struct {
	*site
	file    string
	members []*process
	born    int
}

func (f *fleet) add() {
	f.t.Helper()
	f.born++
	f.members = append(f.members, f.worker(fmt.Sprintf("w%d", f.born), f.file))
}

// remove ends the process that embeds the server, or one that does not.
func (f *fleet) remove(embeds bool, end func(*process)) {
	f.t.Helper()
	for i, p := range f.members {
		if strings.Contains(p.stderr(), "this process serves NATS") == embeds {
			f.members = append(f.members[:i], f.members[i+1:]...)
			end(p)
			return
		}
	}
	f.t.Fatalf("no member of %d whose embedding is %v", len(f.members), embeds)
}

// betweenSlots waits until the newest slot has its outcome and the next one is not
// near.
func (f *fleet) betweenSlots() {
	f.t.Helper()
	eventually(f.t, "a moment between two slots", func() bool {
		now := time.Now()
		return now.Nanosecond() < 800e6 && f.record(slotID("tick", now.Truncate(time.Second))).State == "succeeded"
	})
}

// untilSlots waits until n more slots have run.
func (f *fleet) untilSlots(n int) {
	f.t.Helper()
	until := len(f.touched()) + n
	eventually(f.t, fmt.Sprintf("%d more slots", n), func() bool {
		return len(f.touched()) >= until
	})
}

// The test uses the default address, so no other test runs meanwhile.
func TestFleetRunsEachSlotOnceWhileProcessesComeAndGo(t *testing.T) {
	need(t, "port 4222", taken(defaultAddress))
	f := &fleet{site: newSite(t)}
	f.file = f.jobs(`echo "$CRONCE_SLOT_ID" >>touched`, `name: tick, schedule: "* * * * * *", overlap: allow`)
	for range 5 {
		f.add()
	}
	f.untilSlots(2)
	f.nc = natstest.Connect(t, "nats://"+defaultAddress)
	f.js = natstest.JetStream(t, f.nc)

	for _, change := range []func(){
		f.add,
		func() { f.remove(false, term) },
		func() { f.remove(false, (*process).kill) },
		func() { f.remove(true, (*process).kill) },
		f.add,
		func() { f.remove(true, term) },
		f.add,
		func() { f.remove(false, (*process).kill) },
		func() { f.remove(true, (*process).kill) },
	} {
		f.betweenSlots()
		change()
		f.untilSlots(2)
	}
	f.betweenSlots()
	f.checkEachOnce()
}

// The test uses the default address too, so no other test runs meanwhile.
func TestRunThatCannotEmbedIsAFailure(t *testing.T) {
	need(t, "port 4222", taken(defaultAddress))
	s := newSite(t)
	file := s.jobs("", goodJob)
	store := filepath.Join(s.write("file", ""), "store")
	refusal{status: 1, says: []string{store, "not a directory"}}.check(t, s.worker("w1", file, "--store", store))
	listenAndSay(t, defaultAddress, "HTTP/1.1 400 Bad Request\r\n\r\n")
	refusal{status: 1, says: []string{defaultAddress, "not a NATS server"}}.check(t, s.worker("w2", file))
}

// checkEachOnce compares what the actions wrote and what the ledger says with the
// seconds that have passed.
func (f *fleet) checkEachOnce() {
	f.t.Helper()
	times := map[string]int{}
	first, last := "~", ""
	for _, id := range f.touched() {
		times[id]++
		first, last = min(first, id), max(last, id)
	}
	states := map[string]string{}
	for _, row := range f.slots() {
		if states[row.ID] = row.State; row.State == "missed" {
			f.t.Errorf("%s is missed", row.ID)
		}
	}
	instant, err := time.Parse(time.RFC3339, strings.TrimPrefix(first, "tick:"))
	if err != nil {
		f.t.Fatal(err)
	}
	for id := first; id <= last; id = slotID("tick", instant) {
		if times[id] != 1 || states[id] != "succeeded" {
			f.t.Errorf("%s ran %d times and is %q", id, times[id], states[id])
		}
		instant = instant.Add(time.Second)
	}
	f.t.Logf("%d slots from %s to %s", len(times), first, last)
}

// taken returns the reason why the address cannot be used.
func taken(addr string) string {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err.Error()
	}
	l.Close()
	return ""
}
