// Package filetest reads and writes files in tests.
package filetest

import (
	"os"
	"testing"
)

// Write writes a file that only this user may read.
func Write[T string | []byte](tb testing.TB, path string, data T) {
	tb.Helper()
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// Read reads a file.
func Read(tb testing.TB, path string) []byte {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}
