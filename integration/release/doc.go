// Package release tests the configuration of releases with goreleaser's own reader. It is a separate
// module, so that goreleaser does not choose the versions of Cronce's other dependencies.
package release
