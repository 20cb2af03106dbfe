package main

import (
	"os"
	"testing"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/cmd/cronce/clitest"
	"github.com/cronce-io/cronce/internal/lab/filetest"
)

const referencePage = "../../docs/cli.md"

// The page of all commands is what the commands say of themselves.
func TestTheCommandReferenceIsWhatTheHelpSays(t *testing.T) {
	t.Parallel()
	const intro = "# Commands\n\nThis page is made from what the commands say of themselves (`cronce COMMAND --help`): after a change, `go test ./cmd/cronce -update`.\n\n"
	got := intro + clitest.Reference(newRootCommand(&base.App{}))
	if *update {
		if err := os.WriteFile(referencePage, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got != string(filetest.Read(t, referencePage)) {
		t.Errorf("%s is not what the commands say: go test ./cmd/cronce -update", referencePage)
	}
}

// Every command that a help text shows is one, with flags that it has and values
// that they take.
func TestCommandsInHelpTextsExist(t *testing.T) {
	t.Parallel()
	clitest.CheckHelp(t, newRootCommand, 30)
}

// So is every command that a page names in a sentence.
func TestCommandsNamedOnPagesExist(t *testing.T) {
	t.Parallel()
	clitest.CheckPages(t, newRootCommand, "../..", 50)
}
