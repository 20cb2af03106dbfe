//go:build !linux && !darwin

package embed

// freeSpace is not known on this system. hasSpace then only tries to write a file.
func freeSpace(string) (free uint64, known bool) { return 0, false }
