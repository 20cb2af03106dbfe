// Package jobfile reads the job file: which jobs there are, when they run, and what this process
// does for them.
//
// A file is read in three steps. spec.Source rejects data that is not text. yaml.go parses YAML to
// a tree whose nodes know their positions. Package spec decodes the tree to jobs. format.go writes
// a file.
//
// # Decisions
//
// The errors of a file are reported together, at most spec.MaxErrors of them, in the order of the
// file, each with its line and a caret. So one round of editing is usually enough.
//
// An unknown field is an error. If a misspelled policy were ignored, its author would find out in
// production.
//
// YAML is parsed to a syntax tree, not into structs. Struct decoding stops at the first error. It
// loses the positions of accepted values, which later errors need: a schedule may turn out wrong
// only with its time zone. And it converts values: the name 1e3 would become another string.
//
// A file names secrets and does not contain them. A user and a password in a URL may be
// secrets too, so errors do not show them. The worker resolves a secret's name later. So a file that
// is valid on one machine is valid on all.
//
// Anchors, aliases and merge keys work, because jobs have much in common. Tags are rejected,
// because nothing here needs them. Aliases are not copied, so many nested aliases cost little until
// they are written out as a payload, whose size is limited.
//
// Numbers of a payload reach the handler as they were written, digit by digit. Spellings that JSON
// does not have (0123, 1_000, 0x10) are rejected, because YAML versions read them differently. The
// members of a payload's objects are sorted, so that the job does not change if they are reordered.
package jobfile
