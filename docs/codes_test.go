package docs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// The protocol and the HTTP API share one list of codes.
func TestProtocolListsTheCodesOfRequests(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(string(filetest.Read(t, "protocol.md")), "## 16. Requests to nodes")
	section, _, _ = strings.Cut(section, "\n## ")
	_, table, _ := strings.Cut(section, "| code | meaning |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	if len(rows) != len(fault.Shared()) {
		t.Fatalf("the table has %d codes, the code %d", len(rows), len(fault.Shared()))
	}
	for i, c := range fault.Shared() {
		if want := fmt.Sprintf("| %d |", c.Status); !strings.HasPrefix(rows[i], want) {
			t.Errorf("row %d is %q, want the code %d", i, rows[i], c.Status)
		}
	}
}
