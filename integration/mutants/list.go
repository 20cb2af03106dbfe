package main

import "slices"

// mutant is one way to break the code.
type mutant struct {
	name string

	// breaks says which rule is gone.
	breaks string

	file     string // below the module's root
	old, new string // old is there once

	// test, in the file's package or in the folder that is named, has to fail.
	test string
	in   string
}

// mutants are all of them: a file for each part of the code that they break.
var mutants = slices.Concat(producerMutants, jobMutants, kvMutants, consumerMutants, fleetMutants, programMutants)
