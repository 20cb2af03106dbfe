package main

import (
	"embed"
	"io/fs"
	"strings"
)

// mutant is one way to break the code, and the test that must notice it.
type mutant struct {
	name string

	// breaks says what goes wrong.
	breaks string

	file     string // relative to the root of the module
	old, new string // old occurs once

	// test must fail. It is in the folder in, or if that is empty, in the folder of the file.
	test string
	in   string
}

// lists are files of mutants. Each part of the code has one. The package comment describes the format.
//
//go:embed *.mutants
var lists embed.FS

// mutants are all mutants.
var mutants = readLists()

func readLists() (all []mutant) {
	names, err := fs.Glob(lists, "*.mutants")
	if err != nil {
		panic(err) // unreachable: the pattern is valid
	}
	for _, name := range names {
		text, err := lists.ReadFile(name)
		if err != nil {
			panic(err) // unreachable: the file is embedded
		}
		for entry := range strings.SplitSeq(strings.Trim(string(text), "\n"), "\n\n") {
			all = append(all, readMutant(entry))
		}
	}
	return all
}

func readMutant(entry string) (m mutant) {
	var old, replacement []string
	for i, line := range strings.Split(entry, "\n") {
		switch words := strings.Fields(line); {
		case i == 0:
			m.name, m.breaks, _ = strings.Cut(line, ": ")
		case i == 1 && len(words) >= 2:
			m.file, m.test, m.in = words[0], words[1], strings.Join(words[2:], " ")
		case strings.HasPrefix(line, "-"):
			old = append(old, line[1:])
		case strings.HasPrefix(line, "+"):
			replacement = append(replacement, line[1:])
		default:
			panic("mutant " + m.name + ": unexpected line: " + line)
		}
	}
	m.old, m.new = strings.Join(old, "\n"), strings.Join(replacement, "\n")
	return m
}
