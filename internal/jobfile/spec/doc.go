// Package spec decodes the tree of a job file to jobs and their actions.
//
// The tree's nodes know their positions, so each error names a line and a column. Package
// jobfile builds the tree from YAML; ParseJSON builds it from JSON, so that a program that
// reads no YAML does not link a YAML parser. Only package job validates a job. If it
// rejects one, this package sets one field after the other and attributes each error to
// the node that caused it.
package spec
