//go:build !darwin && !dragonfly && !freebsd && !linux && !openbsd

package guard

// dispatch fails: there is no guard process on these systems.
func dispatch([]string) int { return 2 }
