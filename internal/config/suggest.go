package config

import (
	"strconv"
	"strings"
)

// suggest says which of words was meant, or else which there are.
func suggest(word string, words []string) string {
	best, least := "", max(1, min(len(word)/3, 3))+1
	for _, w := range words {
		if d := distance(strings.ToLower(word), w, least); d < least {
			best, least = w, d
		}
	}
	if best != "" {
		return "did you mean " + strconv.Quote(best) + "?"
	}
	return "want " + alternatives(words)
}

// alternatives is "a", "a or b", "a, b or c".
func alternatives(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// distance counts the letters to insert, drop or change to make b of a; limit
// when it is no less.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], limit)
}
