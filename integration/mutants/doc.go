// Mutants breaks the real code, one rule at a time, and checks that a test notices.
// A test that nothing can fail is no test: each of the rules on which the promise
// stands is here as a replacement in the source, with the name of a test that has
// to fail with it.
//
//	go tool task mutants                    all of them
//	go run ./integration/mutants NAME...    some
//	go run ./integration/mutants -part 1/3  every third, from the first on
//
// With "torture" before the names, the code is sabotaged in ways that "cronce torture" must
// find (sabotage.go). Each program is built and tortured with a fixed seed. It must end with
// status 3 and a violation of one of the named rules. That takes minutes each.
//
//	go tool task torture:mutants
//
// First the named tests must pass on the unchanged code. Then each mutant is built with
// go test -overlay, so the source is not touched, and its test must fail. A mutant that does
// not compile, or whose test does not run, is an error of the list.
//
// The list ages with the code. A plain go test checks that every replacement still applies
// exactly once, and that its test exists. If you move a rule, move its mutant.
package main
