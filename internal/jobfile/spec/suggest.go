package spec

import (
	"slices"
	"strconv"
	"strings"

	nearest "github.com/cronce-io/cronce/internal/text/suggest"
)

// suggest asks whether the most similar word was meant. If none is similar, it lists the words.
func suggest(word string, words []string) string {
	if near := nearest.Nearest(word, words); near != "" {
		return "did you mean " + strconv.Quote(near) + "?"
	}
	return "want " + alternatives(words)
}

// suggestField is suggest for an unknown field. For exec, http and nats, it says that they belong
// below "action", which no similar word would show.
func suggestField(name string, fields []string) string {
	if slices.Contains([]string{"exec", "http", "nats"}, name) && slices.Contains(fields, "action") {
		return "it goes below \"action\""
	}
	return suggest(name, fields)
}

// alternatives returns "a", "a or b", "a, b or c".
func alternatives(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
