package client_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// The events may be stored in another order than their times, which are of different clocks.
func TestNodesContinuesAfterTheCursorOfAFormerNode(t *testing.T) {
	s := newShop(t)
	fenced := func(peer string, after time.Duration) {
		t.Helper()
		e := job.Event{V: 1, Kind: job.EventFenced, Node: "web9", Peer: peer, Time: s.at.Add(after)}
		data, err := exchange.MarshalEvent(e, s.store.Room())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.js.Publish(t.Context(), s.store.EventSubject(string(e.Kind), exchange.NoJob), data); err != nil {
			t.Fatal(err)
		}
	}
	fenced("web1", time.Second)
	fenced("web3", 0)
	fenced("web2", 2*time.Second)
	for i, name := range []string{"web4", "web5"} {
		n := exchange.Node{Name: name, State: exchange.NodeFenced, Started: s.at.Add(time.Duration(i) * time.Second), Lease: time.Second, Worker: true, Nonce: "n"}
		if _, err := s.store.Nodes().Write(t.Context(), n, 0); err != nil {
			t.Fatal(err)
		}
		fenced(name, time.Minute)
	}
	var names []string
	for cursor := client.Cursor(""); len(names) < 9; {
		list, err := s.as("alice@a").Nodes(t.Context(), client.NodeFilter{Former: true, After: cursor})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Nodes) == 0 {
			break
		}
		names, cursor = append(names, list.Nodes[0].Node), list.Nodes[0].Cursor()
	}
	if got := strings.Join(names, " "); got != "web3 web1 web2 web4 web5" {
		t.Errorf("listed %s", got)
	}
}
