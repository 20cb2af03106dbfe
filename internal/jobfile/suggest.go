package jobfile

import (
	"slices"
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

// place is where a field goes that is none here: the actions are below "action", which
// nobody guesses by the spelling.
func place(name string, fields []string) string {
	if slices.Contains([]string{"exec", "http", "nats"}, name) && slices.Contains(fields, "action") {
		return "it goes below \"action\""
	}
	return suggest(name, fields)
}

// alternatives is "a", "a or b", "a, b or c".
func alternatives(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
