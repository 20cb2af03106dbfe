// Package jobfile reads the job file: which jobs there are, when they run, and
// what this process does for them.
//
// A file is read in three steps: spec.Source refuses what is not text, yaml.go turns
// YAML into a tree whose nodes know their positions, and package spec turns the tree
// into jobs. format.go writes a file.
//
// # Decisions
//
// All errors of a file are reported, in the order of the file, with the line and a caret,
// so that one round of editing is enough.
//
// An unknown field is an error. A policy that is silently ignored would be found in
// production.
//
// YAML is parsed to a syntax tree, not into structs. Struct decoding stops at
// the first error, loses the positions of accepted values (the schedule
// whose time zone turns out wrong), and converts: a name 1e3 would become
// another string.
//
// A file names secrets and does not contain them. A user and a password in a URL may be
// secrets too, so errors do not show them. The action resolves a secret's name when it
// runs, so a file is valid or invalid on every machine alike.
//
// Anchors, aliases and merge keys work, because jobs share much; tags are
// refused, because nothing here needs them. Aliases are never copied, so a bomb
// of them costs nothing until it is written out as a payload, whose size is
// limited.
//
// Numbers of a payload reach the handler as they were written, digit by digit;
// spellings that YAML versions read differently (0123, 1_000) are refused.
// The members of its objects are sorted, so that reordering them is no edit of
// the job.
package jobfile
