package suggest_test

import (
	"testing"

	"github.com/cronce-io/cronce/internal/text/suggest"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	words := []string{"schedule", "timezone", "Europe/Berlin", "America/New_York", "retry"}
	for word, want := range map[string]string{
		"schedul":       "schedule",
		"Schedule":      "schedule",
		"shcedule":      "schedule",
		"europe/berlin": "Europe/Berlin",
		"Berlin":        "Europe/Berlin",
		"ritry":         "retry",
		"banana":        "",
		"":              "",
	} {
		if got := suggest.Nearest(word, words); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	if words[0] != "schedule" {
		t.Error("it sorted its caller's words")
	}
}
