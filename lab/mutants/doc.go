// Mutants breaks the real code, one rule at a time, and checks that a test notices. A test that
// cannot fail proves nothing. So for each rule on which the promise depends there is a mutant: a
// replacement in the source, and the name of a test that must fail with it.
//
//	.ci/task mutants                      all mutants
//	go run -C lab ./mutants NAME...       some mutants
//	go run -C lab ./mutants -part 1/3     every third mutant, from the first on
//
// The lists of mutants are the files *.mutants. A blank line ends a mutant. Its first line has its name,
// and says what it breaks. The second line has the file, the test that must fail, and the folder of the
// test if that is another one. Then come the lines to replace, each after a -, and the new lines, each
// after a +, as in a diff. The first and the last line may be a part of a line of the file.
//
// First the named tests must pass on the unchanged code. Then each mutant is built with
// go test -overlay, so the source is not touched, and its test must fail. A mutant that does
// not compile, or whose test does not run, is an error of the list.
//
// The word "torture" before the names selects the sabotages: mutants that "cronce-lab torture" must find
// (sabotage.go). Each program is built, and tortured with a fixed seed. The torture must end with
// status 3 and a violation of one of the named rules. Each sabotage takes minutes.
//
//	.ci/task torture:mutants
//
// The list must follow the code. A plain go test checks that every replacement still applies
// exactly once, and that its test exists. If you move a rule, adapt its mutant.
package main
