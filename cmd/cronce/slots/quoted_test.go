package slots

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/text/printable"
)

func TestQuotedIDsAreWhatAShellTakes(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"report:2026-11-21T07:00:00Z", "report:@it's", `report:@a\'b`, "report:@\u202egnp.exe", "report:@\u200b'\\n", "report:@$(touch x)"} {
		cmd := exec.Command("bash", "-c", "printf %s "+quoted(id))
		cmd.Env = []string{"LC_ALL=C.UTF-8"}
		out, err := cmd.Output()
		if err != nil || string(out) != id {
			t.Errorf("%q is quoted as %s, which is %q, %v", id, quoted(id), out, err)
		}
		if strings.ContainsFunc(quoted(id), printable.Hidden) {
			t.Errorf("%q is quoted with what a terminal obeys", id)
		}
	}
}
