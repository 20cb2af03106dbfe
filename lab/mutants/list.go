package main

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

// mutant is one way to break the code, and the test that must notice it.
type mutant struct {
	name string

	// at is its place in a list, like lab/mutants/kv.mutants:12. A sabotage has none.
	at string

	// breaks says what goes wrong.
	breaks string

	file     string // relative to the root of the repository
	old, new string // old occurs once

	// test must fail. It is in the folder in, or if that is empty, in the folder of the file.
	test string
	in   string
}

// title names the mutant in errors.
func (m mutant) title() string {
	if m.at == "" {
		return m.name
	}
	return m.at + ": " + m.name
}

// lists are files of mutants. Each part of the code has one. The package comment describes the format.
//
//go:embed *.mutants
var lists embed.FS

// mutants are all mutants. errLists is a mistake in the lists.
var mutants, errLists = readLists()

func readLists() (all []mutant, err error) {
	names, err := fs.Glob(lists, "*.mutants")
	if err != nil {
		panic(err) // unreachable: the pattern is valid
	}
	for _, name := range names {
		text, err := lists.ReadFile(name)
		if err != nil {
			panic(err) // unreachable: the file is embedded
		}
		list, err := readList("lab/mutants/"+name, string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// readList reads the mutants of a list. Its errors begin with the file and the line.
func readList(name, text string) (all []mutant, err error) {
	var entry []string
	for i, line := range append(strings.Split(text, "\n"), "") {
		if line != "" {
			entry = append(entry, line)
			continue
		}
		if len(entry) == 0 {
			continue
		}
		m, wrong, err := readMutant(entry)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, i-len(entry)+wrong+1, err)
		}
		m.at = fmt.Sprintf("%s:%d", name, i-len(entry)+1)
		all, entry = append(all, m), nil
	}
	return all, nil
}

// readMutant reads the lines of a mutant. wrong is the index of the line that an error is about.
func readMutant(entry []string) (m mutant, wrong int, err error) {
	var named bool
	if m.name, m.breaks, named = strings.Cut(entry[0], ": "); !named {
		return m, 0, fmt.Errorf("%q: want the name of a mutant, a colon, and what it breaks", entry[0])
	}
	if len(entry) < 3 {
		return m, 0, fmt.Errorf("mutant %s: want a line with the file and the test, and then the lines to replace", m.name)
	}
	words := strings.Fields(entry[1])
	if len(words) != 2 && len(words) != 3 || !strings.HasPrefix(words[1], "Test") {
		return m, 1, fmt.Errorf("mutant %s: %q: want the file, the test, and the folder of the test if that is another one", m.name, entry[1])
	}
	m.file, m.test, m.in = words[0], words[1], strings.Join(words[2:], "")
	var old, replacement []string
	for i, line := range entry[2:] {
		switch {
		case line[0] == '-' && len(replacement) == 0:
			old = append(old, line[1:])
		case line[0] == '+' && len(old) > 0:
			replacement = append(replacement, line[1:])
		default:
			return m, i + 2, fmt.Errorf("mutant %s: %q: want the lines to replace, each after a -, and then the new lines, each after a +", m.name, line)
		}
	}
	m.old, m.new = strings.Join(old, "\n"), strings.Join(replacement, "\n")
	return m, 0, nil
}
