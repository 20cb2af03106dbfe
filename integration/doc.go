// Package integration holds what can only be seen from outside: the built binary,
// real servers and clusters, real processes, and what the engine really does.
package integration
