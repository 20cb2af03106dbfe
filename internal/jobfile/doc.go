// Package jobfile reads the job file: which jobs there are, when they run, and what this process
// does for them.
//
// A file is read in three steps. spec.Source rejects data that is not text. yaml.go parses YAML to
// a tree whose nodes know their positions. Package spec decodes the tree to jobs. format.go writes
// a file.
//
// # Decisions
//
// All errors of a file are reported, in the order of the file, with the line and a caret,
// so that one round of editing is enough.
//
// An unknown field is an error. If a misspelled policy were ignored, its author would find out in
// production.
//
// YAML is parsed to a syntax tree, not into structs. Struct decoding stops at the first error. It
// loses the positions of accepted values, which later errors need: a schedule may turn out wrong
// only with its time zone. And it converts values: the name 1e3 would become another string.
//
// A file names secrets and does not contain them. A user and a password in a URL may be
// secrets too, so errors do not show them. The action resolves a secret's name when it
// runs. So a file that is valid on one machine is valid on all.
//
// Anchors, aliases and merge keys work, because jobs have much in common. Tags are rejected,
// because nothing here needs them. Aliases are not copied, so many nested aliases cost little until
// they are written out as a payload, whose size is limited.
//
// Numbers of a payload reach the handler as they were written, digit by digit. Spellings that
// YAML versions read differently (0123, 1_000) are rejected. The members of a payload's objects are
// sorted, so that the job does not change if they are reordered.
package jobfile
