package base

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"
)

func TestConfirmTakesOnlyYesForYes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"y\n": true, "Yes\n": true, "n\n": false, "\n": false, "no": false, "y": true} {
		a := &App{Stderr: io.Discard}
		yes, err := a.Confirm(context.Background(), bufio.NewReader(strings.NewReader(text)), func() {}, "the test", "?")
		if yes != want || err != nil {
			t.Errorf("%q: %v, %v", text, yes, err)
		}
	}
	a := &App{Stderr: io.Discard}
	if yes, err := a.Confirm(context.Background(), bufio.NewReader(strings.NewReader("")), func() {}, "the test", "?"); yes || err == nil {
		t.Errorf("no answer: %v, %v", yes, err)
	}
}
