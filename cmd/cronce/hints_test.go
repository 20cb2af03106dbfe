package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
)

// What an error proposes to try exists: its commands, and their flags.
func TestHintsNameCommandsAndFlagsThatExist(t *testing.T) {
	t.Parallel()
	root := newRootCommand(&base.App{})
	command, flag := regexp.MustCompile(`cronce( [a-z]+)+`), regexp.MustCompile(`--[a-z][a-z-]*`)
	flags := map[string]bool{"--help": true}
	for _, c := range allCommands(root) {
		for _, f := range flag.FindAllString(c.NonInheritedFlags().FlagUsages(), -1) {
			flags[f] = true
		}
	}
	hints := 0
	for _, hint := range literalsOfHints(t) {
		for _, text := range command.FindAllString(hint, -1) {
			hints++
			words := strings.Fields(text)[1:]
			if found, _, err := root.Find(words); err != nil || found == root {
				t.Errorf("hint %q: there is no command %q", hint, text)
			}
		}
		for _, text := range flag.FindAllString(hint, -1) {
			hints++
			if !flags[text] {
				t.Errorf("hint %q: no command has the flag %s", hint, text)
			}
		}
	}
	if hints < 30 {
		t.Errorf("only %d commands and flags found in hints", hints)
	}
}

func allCommands(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		all = append(all, allCommands(sub)...)
	}
	return all
}

// literalsOfHints returns the texts in the second argument of each call of Try.
func literalsOfHints(t *testing.T) (all []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, isCall := n.(*ast.CallExpr)
			if !isCall || len(call.Args) != 2 {
				return true
			}
			name, _ := call.Fun.(*ast.Ident)
			if selector, ok := call.Fun.(*ast.SelectorExpr); ok {
				name = selector.Sel
			}
			if name == nil || name.Name != "Try" {
				return true
			}
			ast.Inspect(call.Args[1], func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if text, err := strconv.Unquote(literal.Value); err == nil {
						all = append(all, text)
					}
				}
				return true
			})
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return append(all, base.DeliveriesHint)
}
