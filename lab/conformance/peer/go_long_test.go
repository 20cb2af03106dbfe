//go:build long && unix

package peer_test

import (
	"os"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/lab/conformance"
	"github.com/cronce-io/cronce/lab/conformance/peer"
)

// The Go code passes the peer through the same door as a client in any other language.
func TestGoPassesThePeer(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	err = peer.Run(t.Context(), peer.Config{
		Command: conformance.Command{Line: "'" + exe + "' -test.run TestClientOfThePeer", Env: []string{asClient + "=1"}}, Scenarios: peer.Scenarios(),
		AtOnce: 4, Longest: natstest.Patience,
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
	if len(left) > 0 {
		t.Errorf("scenarios left to others: %v", left)
	}
}
