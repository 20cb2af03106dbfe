package main

import "slices"

// mutant is one way to break the code.
type mutant struct {
	name string

	// breaks says what goes wrong.
	breaks string

	file     string // relative to the root of the module
	old, new string // old occurs once

	// test must fail. It is in the package of the file, or in the folder in.
	test string
	in   string
}

// mutants are all mutants. Each part of the code has a file.
var mutants = slices.Concat(producerMutants, jobMutants, kvMutants, consumerMutants, fleetMutants, programMutants)
