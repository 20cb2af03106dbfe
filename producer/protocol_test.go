package producer

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// shareVectors are the vectors of docs/protocol.md for the shares. Other implementations
// compute the same.
type shareVectors struct {
	Hashes []struct {
		Parts []string `json:"parts"`
		Hash  string   `json:"hash"`
	} `json:"hashes"`
	Members []struct {
		Rules string   `json:"rules"`
		Nodes []string `json:"nodes"`
		E     string   `json:"e"`
	} `json:"members"`
	Registries []struct {
		Jobs []struct {
			Name     string    `json:"name"`
			Revision uint64    `json:"revision"`
			Time     time.Time `json:"time"`
			Broken   bool      `json:"broken"`
		} `json:"jobs"`
		R string `json:"r"`
	} `json:"registries"`
	Shares []struct {
		Nodes []string          `json:"nodes"`
		Of    map[string]string `json:"of"`
	} `json:"shares"`
}

func TestSharesAreThoseOfTheProtocol(t *testing.T) {
	t.Parallel()
	data := filetest.Read(t, "../docs/protocol/shares.json")
	var v shareVectors
	if err := json.Unmarshal(data, &v); err != nil || len(v.Hashes)*len(v.Members)*len(v.Registries)*len(v.Shares) == 0 {
		t.Fatal(v, err)
	}
	same := func(what any, got uint64, want string) {
		t.Helper()
		if text := fmt.Sprintf("%016x", got); text != want {
			t.Errorf("%v: the code says %s and the vector %s", what, text, want)
		}
	}
	fleetOf := func(rules string, nodes []string) *fleet {
		f := newFleet(Config{Node: nodes[0], Started: epoch}.withDefaults())
		f.rules = rules
		now := time.Now()
		for i, name := range nodes[1:] {
			f.receive(exchange.Announcement{Node: name, Started: epoch.Add(time.Duration(i+1) * time.Second), Kind: exchange.AnnounceHere}, now)
		}
		f.update(now, true, 1)
		return f
	}
	for _, c := range v.Hashes {
		same(c.Parts, digest(c.Parts...), c.Hash)
	}
	for _, c := range v.Members {
		same(c.Nodes, fleetOf(c.Rules, c.Nodes).members, c.E)
	}
	for _, c := range v.Registries {
		a := newAgenda(0, position{}, slog.New(slog.DiscardHandler))
		for _, j := range c.Jobs {
			k := &plannedJob{def: &definition{name: j.Name, revision: j.Revision}}
			a.addDigest(k, j.Time, j.Broken)
		}
		same(c.Jobs, a.digest, c.R)
	}
	for _, c := range v.Shares {
		f := fleetOf("", c.Nodes)
		for _, name := range slices.Sorted(maps.Keys(c.Of)) {
			if got := f.owner(name).name; got != c.Of[name] {
				t.Errorf("of %v, job %s is %s's, and by the vector %s's", c.Nodes, name, got, c.Of[name])
			}
		}
	}
}
