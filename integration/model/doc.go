// Package model checks the two ideas on which everything else stands, from
// outside and by machine: that a write to the ledger behaves as one step, and
// that the rules which workers follow between such steps are right.
package model
