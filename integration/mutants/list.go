package main

import "slices"

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

// mutants are all mutants. Each part of the code has a file.
var mutants = slices.Concat(producerMutants, jobMutants, kvMutants, consumerMutants, fleetMutants, programMutants)
