package jobs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
)

// A job that was written meanwhile does not keep the others from being applied,
// but nothing is removed then.
func TestJobApplyTellsWhatCouldNotBeDone(t *testing.T) {
	t.Parallel()
	report := []client.Applied{
		{Job: "report", Action: client.Update, Err: &client.ConflictError{Job: "report", By: "bob@b", Owner: "operator", At: time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC), Revision: 9}},
		{Job: "backup", Action: client.Keep}, {Job: "old", Action: client.Delete, Err: fmt.Errorf("job old: %w", client.ErrNotTried)},
	}
	for output, want := range map[string]string{
		base.OutputText: `failed: job report was changed meanwhile by "bob@b" (operator) at 2026-03-28T12:00:00Z, revision 9: this operation changed nothing` + "\n" +
			"1 unchanged, 1 failed, 1 not tried\n",
		base.OutputJSON: `{"job":"report","change":"failed","handlers":0,"error":"job report was changed meanwhile by \"bob@b\" (operator) at 2026-03-28T12:00:00Z, revision 9: this operation changed nothing"}` + "\n" +
			`{"job":"backup","change":"unchanged","handlers":0}` + "\n" + `{"job":"old","change":"not_tried"}` + "\n",
	} {
		var out strings.Builder
		if err := printApplied(base.Session{App: &base.App{Stdout: &out, Output: output}}, report, false); err != nil || out.String() != want {
			t.Errorf("%s prints\n%s%v\nwant\n%s", output, out.String(), err, want)
		}
	}
}
