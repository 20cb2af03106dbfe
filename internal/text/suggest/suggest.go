// Package suggest finds the known word that is nearest to an unknown one.
package suggest

import (
	"slices"
	"strings"
)

// Nearest returns the candidate that the author of name most likely meant, or "". It
// ignores case, accepts the last part of a path ("Berlin" for "Europe/Berlin"), and
// tolerates one to three typing errors, depending on the length of name.
func Nearest(name string, candidates []string) string {
	const longest = 40
	if name == "" || len(name) > longest {
		return ""
	}
	candidates = slices.Sorted(slices.Values(candidates)) // the same answer for any order
	lower := strings.ToLower(name)
	best, least := "", max(1, min(len(name)/3, 3))+1
	for _, c := range candidates {
		candidate := strings.ToLower(c)
		if candidate == lower {
			return c
		}
		distance := editDistance(lower, candidate)
		if strings.HasSuffix(candidate, "/"+lower) {
			distance = 0
		}
		if distance < least {
			best, least = c, distance
		}
	}
	return best
}

// editDistance returns the number of bytes to insert, delete or replace to turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
