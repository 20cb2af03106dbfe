// Package release reads the configuration of releases as goreleaser does. It is a module of
// its own, because of what goreleaser requires.
package release
