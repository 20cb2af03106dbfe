package main

import (
	"bytes"
	"compress/gzip"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/cronce-io/cronce/cmd/cronce/base"
)

// A release writes the files of its packages with these (.goreleaser.yaml).
var (
	manuals = flag.String("manuals", "", "`folder` for manual pages and completions (default: a temporary one)")
	date    = flag.Int64("date", 0, "Unix `time` of the commit, for the manual pages")
)

// The binary does not link what makes manual pages.
func TestManualsOfPackages(t *testing.T) {
	t.Parallel()
	dir := *manuals
	if dir == "" {
		dir = t.TempDir()
	}
	for _, sub := range []string{"man", "man1", "completions"} {
		if err := os.RemoveAll(filepath.Join(dir, sub)); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	save := func(name string, text []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root := newRootCommand(&base.App{})
	root.DisableAutoGenTag = true
	root.InitDefaultCompletionCmd()
	at := time.Unix(*date, 0).UTC()
	pages := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		var page, packed bytes.Buffer
		header := &doc.GenManHeader{Section: "1", Date: &at, Source: "cronce", Manual: "Cronce"}
		if err := doc.GenMan(cmd, header, &page); err != nil {
			t.Fatal(err)
		}
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		if !strings.Contains(page.String(), ".SH SYNOPSIS") {
			t.Errorf("%s has no synopsis", name)
		}
		z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if err == nil {
			_, err = z.Write(page.Bytes())
		}
		if err == nil {
			err = z.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		save("man/"+name, page.Bytes())
		save("man1/"+name+".gz", packed.Bytes())
		pages++
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				walk(sub)
			}
		}
	}
	walk(root)
	if pages < 30 {
		t.Errorf("there are only %d manual pages", pages)
	}
	for name, generate := range map[string]func(*bytes.Buffer) error{
		"cronce.bash": func(w *bytes.Buffer) error { return root.GenBashCompletionV2(w, true) },
		"_cronce":     func(w *bytes.Buffer) error { return root.GenZshCompletion(w) },
		"cronce.fish": func(w *bytes.Buffer) error { return root.GenFishCompletion(w, true) },
		"cronce.ps1":  func(w *bytes.Buffer) error { return root.GenPowerShellCompletionWithDesc(w) },
	} {
		var w bytes.Buffer
		if err := generate(&w); err != nil {
			t.Fatal(err)
		}
		save("completions/"+name, w.Bytes())
	}
}
