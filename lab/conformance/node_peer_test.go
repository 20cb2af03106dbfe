//go:build kit && unix

package conformance_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/lab/conformance"
	"github.com/cronce-io/cronce/lab/conformance/peer"
)

// The client for Node.js passes all scenarios of the peer except the one that it leaves to others.
func TestJavaScriptPassesThePeer(t *testing.T) {
	t.Parallel()
	if left := passesPeer(t, nodeClient+"/peer.js", peer.Scenarios()); !slices.Equal(left, []string{"events-unanswered"}) {
		t.Errorf("scenarios left to others: %v", left)
	}
}

// The smallest worker, which the protocol page shows, keeps every MUST that it does not leave to
// others.
func TestTheMinimalWorkerPassesThePeer(t *testing.T) {
	t.Parallel()
	left := []string{
		"guarded", "lock-stands", "lock-look", "lock-line-again", "lock-calls", "lock-displaced", "lock-leaves", "lock-lost", "lock-skips", "lock-places", "lock-moves", "lock-replaces", "lock-replaces-dead", "lock-replaces-retrying", "lock-replaces-late", "lock-not-on-time", "lock-renewed", "foreign-lock", "lock-2", "follows", "follows-again", "follows-two", "alert", "timer", "publication-unanswered", "removed", "cut-off", "away", "newer-zone", "definition-2", "registry-unseen", "watermark-ahead", "watermark-2",
		"future-t", "silent-t", "ghost-t", "wrong-clock", "wrong-clock-slow", "events-unanswered", "trigger", "trigger-later", "trigger-large",
	}
	if found := peer.Named(left...); len(found) != len(left) {
		t.Errorf("of the %d scenarios that are left to others, the peer has %d", len(left), len(found))
	}
	play := slices.DeleteFunc(peer.Scenarios(), func(s peer.Scenario) bool { return slices.Contains(left, s.Name) })
	if more := passesPeer(t, nodeClient+"/peer.js minimal", play); len(more) > 0 {
		t.Errorf("more scenarios left to others: %v", more)
	}
}

// passesPeer runs scenarios of the peer with a client, and returns those that the client leaves to others.
func passesPeer(t *testing.T, script string, scenarios []peer.Scenario) (left []string) {
	t.Helper()
	err := peer.Run(t.Context(), peer.Config{
		Command: conformance.Command{Line: "'" + needNode(t) + "' " + script}, Scenarios: scenarios, AtOnce: 4, Longest: natstest.Patience,
		Result: func(r peer.Result) {
			for _, b := range r.Broken {
				t.Errorf("%s: %s: %s\n%s", r.Scenario.Name, b.Must, b.Detail, strings.Join(r.Story, "\n"))
			}
			if r.Left != "" {
				left = append(left, r.Scenario.Name)
			}
		},
	})
	if err != nil {
		t.Error(err)
	}
	return left
}
