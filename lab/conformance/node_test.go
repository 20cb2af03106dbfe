//go:build (long || kit) && unix

package conformance_test

import (
	"maps"
	"os"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/lab/need"
	"github.com/cronce-io/cronce/lab/conformance"
)

// nodeClient is the client in JavaScript, which was written from docs/protocol.md.
const nodeClient = "../../clients/node"

// needNode skips the test if there is no Node.js, or if the dependencies of the client are not there. A plain "go
// test" never fetches them from the network.
func needNode(t *testing.T) (node string) {
	t.Helper()
	node = need.Program(t, "node")
	if _, err := os.Stat(nodeClient + "/node_modules"); err != nil {
		need.Absent(t, "the dependencies of clients/node", `run ".ci/task node:install"`)
	}
	return node
}

// The conformance kit asks the client for Node.js as it asks any client. The client leaves to others only what
// its README says.
func TestJavaScriptAnswersTheProtocolsVectors(t *testing.T) {
	t.Parallel()
	node := needNode(t)
	cases, err := conformance.Cases()
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]int{}
	err = conformance.Ask(t.Context(), conformance.Command{Line: "'" + node + "' " + nodeClient + "/vectors.js"}, cases, natstest.Patience, func(v conformance.Verdict) {
		if v.Wrong != "" {
			t.Errorf("%s: %s", v.Case, v.Wrong)
		}
		if v.Left != "" {
			left[v.Case.File]++
		}
	})
	if err != nil {
		t.Error(err)
	}
	want := map[string]int{"names": 10, "values": 13, "layout": 2, "registry": 5, "claims": 1, "shards": 8, "events": 18, "sweeps": 31, "shares": 13}
	if !maps.Equal(left, want) {
		t.Errorf("cases left to others, by file: %v, want %v", left, want)
	}
}
