// Package jobfile reads the job file: which jobs there are, when they run, and
// what this process does for them.
//
// A file is read in three steps, one Go file each: source.go refuses what is not
// text, tree.go turns YAML into a tree whose every node knows its place, and
// decode.go and job.go turn the tree into jobs. What is right and wrong in a job
// is decided by package job alone; when it refuses a job, this package sets one
// field after the other and pins each complaint to the node that brought it.
//
// # Decisions
//
// Every mistake of a file is reported, not the first one, in the order of the
// file, with the line and a caret: whoever edits a file wants one round.
//
// A field that is not known is an error: a policy that is silently ignored is found
// out in production.
//
// YAML is parsed to a syntax tree, not into structs. Struct decoding stops at
// the first error, loses the places of values that were accepted (the schedule
// whose time zone turns out wrong), and converts: a name 1e3 would become a
// string that nobody wrote.
//
// A secret is named in a file, not written there, and what might be one all the
// same, a user and a password in a URL, is not shown with a mistake. What a secret's
// name stands for is looked up by whoever needs it: a file is right or wrong
// wherever it is read.
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
