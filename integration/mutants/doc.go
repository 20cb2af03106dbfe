// Mutants breaks the real code, one rule at a time, and checks that a test notices.
// A test that nothing can fail is no test: each of the rules on which the promise
// stands is here as a replacement in the source, with the name of a test that has
// to fail with it.
//
//	go tool task mutants                  all of them
//	go run ./integration/mutants NAME...  some
//	go run ./integration/mutants -part 1/3  every third, from the first on
//
// With "torture" before the names the code is sabotaged in ways that "cronce torture"
// has to find (sabotage.go): each program is built and tortured with a fixed seed,
// and must end with status 3 and a violation of the rule that is named. That takes
// minutes each.
//
//	go tool task torture:mutants
//
// First the named tests have to pass on the code as it is. Then each mutant is
// built, beside the source (go test -overlay), which is not touched, and its test
// has to fail: one that does not compile, or whose test is not run, is an error of
// the list and no kill.
//
// The list ages with the code. A plain go test checks that every replacement still
// applies exactly once and that its test is there; whoever moves a rule moves its
// mutant.
package main
