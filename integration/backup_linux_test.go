//go:build long

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// The commands of the page are run while the fleet works. Slots that had an outcome in the copy have it
// again and do not run a second time, and the fleet goes on.
func TestBackupOfTheOperationsPageIsRestored(t *testing.T) {
	t.Parallel()
	_, missing := lookPath("nats")
	need(t, "the nats CLI in PATH", missing)
	page := filetest.Read(t, "../docs/operations.md")
	var loops []string
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "for s in ") {
			loops = append(loops, strings.TrimSpace(line))
		}
	}
	if len(loops) != 2 {
		t.Fatalf("the page has the commands %q; want one to back up and one to restore", loops)
	}

	s := newServedSite(t)
	file := s.jobs(`echo "$CRONCE_SLOT_ID" >>touched`, `name: tick, schedule: "* * * * * *", overlap: allow`)
	worker := s.worker("w1", file)
	eventually(t, "slots", func() bool { return len(s.touched()) >= 3 })
	before := slices.Clone(s.touched())
	s.shell(loops[0])
	after := len(s.touched())
	eventually(t, "slots that no copy has", func() bool { return len(s.touched()) >= after+2 })
	worker.kill()

	backup := s.path("backup")
	ran := s.touched()
	restored := newServedSite(t)
	if err := os.Rename(backup, restored.path("backup")); err != nil {
		t.Fatal(err)
	}
	restored.shell(loops[1])
	for _, id := range before[:len(before)-1] { // the last may have been about to be recorded
		if r := restored.record(id); r.State != "succeeded" {
			t.Errorf("%s is %q after the restore", id, r.State)
		}
	}
	file = restored.jobs(`echo "$CRONCE_SLOT_ID" >>touched`, `name: tick, schedule: "* * * * * *", overlap: allow`)
	restored.worker("w2", file)
	eventually(t, "the fleet to go on, and a slot of after the copy to run again", func() bool {
		touched := restored.touched()
		return len(touched) >= 3 && slices.Contains(touched, ran[len(ran)-1])
	})
	for _, id := range before[:len(before)-1] {
		if slices.Contains(restored.touched(), id) {
			t.Errorf("%s had succeeded when the copy was made, and ran again", id)
		}
	}
}

// shell runs a command of a page in the site's folder.
func (s *site) shell(command string) {
	s.t.Helper()
	cmd := exec.Command("/bin/sh", "-ec", command)
	cmd.Dir, cmd.Env = s.dir, append(s.env(), "NATS_URL="+s.url)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", command, err, out)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "backup")); err != nil {
		s.t.Fatal(err)
	}
}
