package docs_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/job"
)

// The page has to name what is stored and sent: every member, header, state and
// kind, and every file of vectors.
func TestPageNamesWhatIsOnTheWire(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		job.HeaderMsgID, job.HeaderSlot, job.HeaderJobRevision, job.HeaderNode, job.HeaderDue, job.HeaderCaughtUp, job.HeaderMissed,
		job.HeaderMissedLast, string(job.EventSucceeded), string(job.EventRetrying), string(job.Running), string(job.Pending),
		string(job.NodeAlive), string(job.NodeStopped), string(job.NodeFenced),
	}
	for _, kind := range job.Exceptional() {
		want = append(want, string(kind))
	}
	for _, name := range slices.Concat(want, valueMembers(t)) {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("the page does not name `%s`", name)
		}
	}
	files, err := filepath.Glob("protocol/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if !strings.Contains(string(page), "]("+filepath.ToSlash(file)+")") {
			t.Errorf("the page does not link %s", file)
		}
	}
}

// valueMembers are the members of all values that the vectors have, but for those
// that stand for unknown ones and those of payloads.
func valueMembers(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("protocol/values.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []valueCase
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range cases {
		if strings.HasPrefix(c.Name, "unknown") {
			continue
		}
		var value any
		if err := json.Unmarshal(c.Value, &value); err != nil {
			t.Fatal(err)
		}
		collect(value, seen)
	}
	var names []string
	for name := range seen {
		names = append(names, name)
	}
	return names
}

func collect(value any, seen map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			seen[name] = true
			if name != "payload" {
				collect(inner, seen)
			}
		}
	case []any:
		for _, inner := range v {
			collect(inner, seen)
		}
	}
}
