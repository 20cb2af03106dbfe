package config

import (
	"strconv"
	"strings"

	nearest "github.com/cronce-io/cronce/internal/suggest"
)

// suggest says which of words was meant, or else which there are.
func suggest(word string, words []string) string {
	if near := nearest.Nearest(word, words); near != "" {
		return "did you mean " + strconv.Quote(near) + "?"
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
