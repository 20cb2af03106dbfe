//go:build !linux && !darwin

package embed

// freeSpace is not known here: what can be written decides.
func freeSpace(string) (free uint64, known bool) { return 0, false }
