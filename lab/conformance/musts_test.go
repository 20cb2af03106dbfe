package conformance_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/lab/conformance"
	"github.com/cronce-io/cronce/lab/conformance/peer"
)

var (
	numbered = regexp.MustCompile(`MUST(?: NOT)? \[([A-Z]-[0-9]+)\]`)
	spoken   = regexp.MustCompile(`\bMUST\b`)
)

// Each MUST of the page has a number of its own, musts.json lists just these, and each has a
// case: in the vectors, in the peer or in torture.
func TestEachMustHasANumberAndACase(t *testing.T) {
	t.Parallel()
	page := string(filetest.Read(t, "../../docs/protocol.md"))
	var onPage []string
	for _, m := range numbered.FindAllStringSubmatch(page, -1) {
		onPage = append(onPage, m[1])
	}
	// Two are the words that explain what a MUST is.
	if n := len(spoken.FindAllString(page, -1)); n != len(onPage)+2 {
		t.Errorf("%d MUSTs on the page, %d of them with a number: write MUST [C-1]", n-2, len(onPage))
	}
	musts, err := conformance.Musts()
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range musts {
		listed = append(listed, m.ID)
		if len(m.Vectors)+len(m.Peer)+len(m.Torture) == 0 {
			t.Errorf("%s (%s) has no case in musts.json: in the vectors, the peer or torture", m.ID, m.Say)
		}
	}
	if !slices.Equal(onPage, listed) {
		t.Errorf("docs/protocol.md has\n%v\nand musts.json\n%v\nin the order of the page", onPage, listed)
	}
	if sorted := slices.Sorted(slices.Values(onPage)); len(slices.Compact(sorted)) != len(onPage) {
		t.Error("two MUSTs have one number")
	}
}

// What musts.json names exists, and each case of the vectors belongs to a MUST.
func TestWhatTestsAMustExists(t *testing.T) {
	t.Parallel()
	musts, err := conformance.Musts()
	if err != nil {
		t.Fatal(err)
	}
	cases, err := conformance.Cases()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, c := range cases {
		known[c.File], known[c.File+": "+c.Name] = true, true
		if len(c.Musts) == 0 {
			t.Errorf("%s belongs to no MUST", c)
		}
	}
	rules := tortureRules(t)
	for _, m := range musts {
		var played []string
		for _, sc := range peer.Scenarios() {
			if slices.Contains(sc.Musts, m.ID) {
				played = append(played, sc.Name)
			}
		}
		if !slices.Equal(played, m.Peer) {
			t.Errorf("%s is played by %q, and musts.json says %q", m.ID, played, m.Peer)
		}
		for _, v := range m.Vectors {
			if file, _, _ := strings.Cut(v, "."); !known[v] && !known[file] {
				t.Errorf("%s names the vector %q: there is none", m.ID, v)
			}
		}
		for _, r := range m.Torture {
			if !slices.Contains(rules, r) {
				t.Errorf("%s names the rule %q of torture: there is none", m.ID, r)
			}
		}
	}
}

// tortureRules are the rules that torture knows, as its source names them.
func tortureRules(t *testing.T) (rules []string) {
	t.Helper()
	named := regexp.MustCompile(`c\.bad\("([^"]+)"|Rule: "([^"]+)"`)
	files, err := filepath.Glob("../torture/*/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		for _, m := range named.FindAllStringSubmatch(string(filetest.Read(t, file)), -1) {
			rules = append(rules, strings.TrimSpace(m[1]+m[2]))
		}
	}
	return rules
}
